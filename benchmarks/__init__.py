"""Benchmarks: one file per figure, each measured beside what it is compared with."""
