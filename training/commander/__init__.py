"""Decisions about a run: saving, evaluating and stopping, and their reports."""
