"""Suites of environments by others, with default settings: `python -m remuda.benchmarks.suites --help`."""
