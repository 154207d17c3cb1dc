"""Tests of remuda.worker.stores."""
