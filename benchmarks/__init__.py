"""Benchmarks: one file per figure, each measured beside what it is compared with."""

import os

os.environ.setdefault("REMUDA_PAGE", "0")  # the figures are of training alone; page.py says what a page costs
