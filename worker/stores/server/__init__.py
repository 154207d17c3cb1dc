"""The stream server: files of runs for workers that do not see the runs folder. A process beside the coordinator."""
