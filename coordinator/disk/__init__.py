"""Disk access of the coordinator: journals, run folders and the runs folder, with a thread per run."""
