"""Tests of remuda.wire."""
