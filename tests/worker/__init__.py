"""Tests of remuda.worker."""
