"""Tests of remuda.reanalyzer."""
