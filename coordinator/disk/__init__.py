"""Disk access of the coordinator: journals, run folders and the runs folder, each run in its own thread."""
