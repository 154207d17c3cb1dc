"""Freed memory is reused, measured by the pages that the system has to provide."""

from __future__ import annotations

import subprocess
import sys

import pytest

from remuda.policy.networks.flat_parameters import keep_freed_memory
from remuda.tests.patience import HANG_S

ROUNDS = """
import resource, torch
from remuda.policy.networks.flat_parameters import keep_freed_memory

def blocks():
    return [torch.ones(20 << 20, dtype=torch.uint8) for _ in range(4)]

keep_freed_memory()
for _ in range(10):  # some are put in gaps that are a little too small at first
    blocks()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    blocks()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.processes
@pytest.mark.skipif(not keep_freed_memory(), reason="the C library of this system keeps memory as it likes")
def test_freed_blocks_cost_no_new_pages() -> None:
    ran = subprocess.run([sys.executable, "-c", ROUNDS], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert int(ran.stdout) < 1_000, "10 rounds of 80 MiB are 204,800 pages of 4 kB"
