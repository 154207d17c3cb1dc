"""Tests of remuda.client.sweeps."""
