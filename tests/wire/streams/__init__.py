"""Tests of remuda.wire.streams."""
