"""Payloads, policies and checkpoints of a run, as files or as streams."""
