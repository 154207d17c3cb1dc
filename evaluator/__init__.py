"""Judges checkpoints by playing seeded episodes."""
