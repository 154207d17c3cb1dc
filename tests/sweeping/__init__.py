"""Tests of remuda.sweeping."""
