"""Tests of learners with several ranks."""
