"""What one run's commander decides: when to save, evaluate and stop, and what the logs show of it."""
