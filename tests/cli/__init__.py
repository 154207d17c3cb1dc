"""Tests of remuda.cli."""
