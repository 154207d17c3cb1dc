"""Tests of the benchmarks' runner."""
