"""Tests of the coordinator's commander/."""
