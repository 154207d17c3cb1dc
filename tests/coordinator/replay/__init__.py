"""Tests of the coordinator's replay/."""
