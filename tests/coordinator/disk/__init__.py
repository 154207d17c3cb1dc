"""Tests of the coordinator's disk/."""
