"""Share of the coordinator's processor time that accounting takes, in a run of two collectors with chunks of 32 steps.

The coordinator is a real process with a timer around each call of the meter and of the shares; the timers count as
accounting. Processor time is measured, so that other work on the machine changes little.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from remuda.benchmarks.figure import Figure, Goal, main
from remuda.benchmarks.herd import ROOT, until
from remuda.benchmarks.served_herd import ServedHerd
from remuda.config.load import load_config
from remuda.coordinator.__main__ import main as coordinator
from remuda.coordinator.bill import Meter
from remuda.coordinator.shares import Shares

ENV_STEPS = 30_000
DEADLINE_S = 600.0
MOST_SHARE = 0.01
SETTINGS = ("stop.stop_value=null", "stop.max_env_steps=100000000", "collector.count=2", "collector.chunk_env_steps=32")
RESULT = "accounting.txt"
"""File in the runs folder with the seconds of accounting and of the coordinator."""

T = TypeVar("T")


@dataclass
class Timer:
    """Processor time of calls; a call within another counts once."""

    spent_s: float = 0.0
    runs: bool = False

    def around(self, call: Callable[..., T]) -> Callable[..., T]:
        """Return the call with this timer around it."""

        @functools.wraps(call)
        def timed(*args: object, **options: object) -> T:
            if self.runs:
                return call(*args, **options)
            self.runs, began_s = True, time.thread_time()
            try:
                return call(*args, **options)
            finally:
                self.spent_s += time.thread_time() - began_s
                self.runs = False

        return timed

    def watch(self, owner: type) -> None:
        """Put the timer around all public methods and properties of a class."""
        for name, member in list(vars(owner).items()):
            if isinstance(member, property) and member.fget is not None:
                setattr(owner, name, property(self.around(member.fget)))
            elif callable(member) and not name.startswith("_"):
                setattr(owner, name, self.around(member))


class MeasuredHerd(ServedHerd):
    """A herd whose coordinator measures itself."""

    def _start_coordinator(self) -> subprocess.Popen[bytes]:
        own = ("--runs-dir", str(self.runs), "--connection-file", str(self._connection_file))
        return self._start("coordinator", sys.executable, "-m", "remuda.benchmarks.accounting", "--persistent", *own)


def measured_coordinator() -> None:
    """Run a coordinator, and write what it took."""
    timer = Timer()
    for owner in (Meter, Shares):
        timer.watch(owner)
    began_s = time.process_time()
    coordinator()
    took_s = time.process_time() - began_s
    runs = Path(sys.argv[sys.argv.index("--runs-dir") + 1])
    (runs / RESULT).write_text(f"{timer.spent_s} {took_s}")


def seconds(folder: Path) -> tuple[float, float]:
    """Of accounting, and of the coordinator."""
    herd = MeasuredHerd(folder)
    try:
        herd.start()
        herd.submit(load_config(ROOT / "examples" / "cartpole_dqn.yaml", overrides=SETTINGS).config)

        def there() -> bool:
            status = herd.status()
            return status is not None and any(each.env_step >= ENV_STEPS for each in status.experiments)

        until(there, f"env_step {ENV_STEPS}", deadline_s=DEADLINE_S, pause_s=1.0)
        herd.stop()
    finally:
        herd.end()
    accounting_s, coordinator_s = map(float, (herd.runs / RESULT).read_text().split())
    return accounting_s, coordinator_s


def figures(peers: bool) -> list[Figure]:
    """None of the systems compared with keeps a bill."""
    if peers:
        return []
    with tempfile.TemporaryDirectory() as folder:
        accounting_s, coordinator_s = seconds(Path(folder))
    print(f"accounting {accounting_s:.3f} s of {coordinator_s:.2f} s", file=sys.stderr)
    share, goal = accounting_s / coordinator_s, Goal.parse("<= 1")
    ratio = share / MOST_SHARE
    return [Figure("accounting", "share", share, MOST_SHARE, "at most", ratio, "<= 1", goal.met(ratio), 1)]


if __name__ == "__main__":
    if "--runs-dir" in sys.argv:
        measured_coordinator()
    else:
        main(figures)
