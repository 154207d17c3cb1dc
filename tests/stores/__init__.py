"""Tests of remuda.stores."""
