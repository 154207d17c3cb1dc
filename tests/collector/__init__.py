"""Tests of remuda.collector."""
