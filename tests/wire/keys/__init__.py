"""Tests of remuda.wire.keys."""
