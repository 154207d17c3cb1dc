"""Tests of remuda.policy."""
