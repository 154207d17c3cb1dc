"""Workers as actors of a Ray cluster: Ray places them and starts them again, and carries nothing of a run."""
