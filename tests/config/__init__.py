"""Tests of remuda.config."""
