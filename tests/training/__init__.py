"""Tests of remuda.training."""
