"""Workers that recompute columns of stored rows with the target network."""
