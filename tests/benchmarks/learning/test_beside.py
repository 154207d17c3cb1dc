"""How much other work there was: processor time of the machine less our own, by the time that passed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from remuda.benchmarks.learning.beside import Stopwatch, machine_busy_s, processor_s


def readings(*values: float) -> Callable[[], float]:
    left = iter(values)
    return lambda: next(left)


def test_what_was_not_ours_was_others() -> None:
    """Of 6 seconds of work in 2 seconds, 3 were ours: 1.5 cores were busy with something else."""
    took = Stopwatch(readings(5.0, 7.0), readings(10.0, 16.0), readings(1.0, 4.0)).took()
    assert (took.wall_s, took.other_cores, took.processor_s) == (2.0, 1.5, 3.0)


def test_rounding_makes_no_negative_work() -> None:
    """The machine's time is counted in hundredths, ours finer."""
    assert Stopwatch(readings(0.0, 1.0), readings(0.0, 0.5), readings(0.0, 0.503)).took().other_cores == 0.0


def test_time_that_did_not_pass() -> None:
    assert Stopwatch(readings(1.0, 1.0), readings(0.0, 0.0), readings(0.0, 0.0)).took().other_cores == 0.0


def test_processes_that_ended_are_ours() -> None:
    before, machine = processor_s(), machine_busy_s()
    subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
    assert processor_s() > before
    assert machine_busy_s() >= machine
