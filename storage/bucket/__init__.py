"""Runs in a bucket: the run folder stays local, and a process ships generations of the folder to an object store."""
