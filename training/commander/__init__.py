"""Decisions about one run: saving, evaluating and stopping, and their reports."""
