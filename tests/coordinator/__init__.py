"""Tests of remuda.coordinator."""
