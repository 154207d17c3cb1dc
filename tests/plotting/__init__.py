"""Tests of remuda.plotting."""
