"""Tests of remuda.deploy."""
