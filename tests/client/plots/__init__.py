"""Tests of remuda.client.plots."""
