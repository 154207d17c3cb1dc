"""The stream server: files of runs for workers without the runs folder. A process beside the coordinator."""
