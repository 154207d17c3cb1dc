"""Tests of remuda.runner."""
