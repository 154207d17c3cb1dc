"""Tests of remuda.logbook."""
