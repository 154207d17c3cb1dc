"""Runs in a bucket: a run folder stays local, and a process of its own ships generations of the folder to an object
store."""
