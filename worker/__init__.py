"""Common parts of all workers: the link to the coordinator, beats, files of runs, shutdown."""
