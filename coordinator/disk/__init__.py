"""What the coordinator reads and writes: journals, run folders and the runs folder, each run in its own thread."""
