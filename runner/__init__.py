"""Serial mode: every role in one process."""
