"""Workers as actors of a Ray cluster: Ray places and restarts them, and carries no data of a run."""
