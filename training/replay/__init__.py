"""Counting, sampling and dropping of experience, and limits on it."""
