"""12. A thousand simulated workers on one real coordinator: cheap beats, and nobody is taken for dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.tests.faults.sizes import LONG, WATCHED_S, WORKERS, within

pytestmark = pytest.mark.processes


def test_beats_of_a_large_herd_cost_little_and_nobody_is_lost() -> None:
    sizes = ("--workers", str(WORKERS), "--seconds", str(WATCHED_S), *(() if LONG else ("--young",)))
    watched = subprocess.run(
        [sys.executable, "-m", "remuda.benchmarks.thousand_workers", *sizes],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / ".typing")},
    )
    seen: dict[str, float] = json.loads(watched.stderr.splitlines()[-1])
    growth = seen["rss_after_mib"] / seen["rss_before_mib"] - 1
    print(
        f"12: {WORKERS} workers: registered within {seen['registered_p99_s']:.3f} s (p99), {seen['beats_per_s']:.0f} "
        f"beats/s cost {seen['cores']:.3f} cores, memory {100 * growth:+.1f} % in {WATCHED_S:g} s"
    )
    assert seen["alive"] == WORKERS
    assert growth < (0.05 if LONG else 0.2)
    assert within(seen["cores"], 0.5)
    assert within(seen["beats_per_s"], 220), "two hundred, and how they happen to fall"
    assert within(seen["registered_p99_s"], 4.0)
