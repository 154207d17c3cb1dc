"""Tests of remuda.buffer."""
