"""Gathers experience with the newest policy."""
