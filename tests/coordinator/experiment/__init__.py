"""Tests of the coordinator's experiment/."""
