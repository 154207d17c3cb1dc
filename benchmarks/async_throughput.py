"""Environment steps/s of an asynchronous run of two collectors on CartPole-v1 that learns to 475 on the way."""

from __future__ import annotations

import csv
import functools
import itertools
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from remuda.benchmarks import process
from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.peers import peer
from remuda.config.load import load_config
from remuda.policy.row_plan import row_plan

CONFIG = Path(__file__).parent / "configs" / "async_throughput.yaml"
STOP_VALUE = 475.0
LIMIT_PER_S = 300_000.0
"""The goal on two cores."""
DEADLINE_S = 120.0
MEMORY_INTERVAL_S = 1.0


def figures(peers: bool) -> list[Figure]:
    """With the environment's own vector, and with one Python object per environment, as Sample Factory steps them."""
    found = compare(
        "async_throughput",
        unit="env steps/s",
        goal=">= 1",
        ours=functools.partial(ours, "native", itertools.count()),
        references={"limit": lambda: LIMIT_PER_S},
    )
    for vectorization, goal in (("native", ">= 5"), ("sync", ">= 2")) if peers else ():
        found += compare(
            f"async_throughput_{vectorization}",
            unit="env steps/s",
            goal=goal,
            ours=functools.partial(ours, vectorization, itertools.count()),
            references={"sample-factory": peer("sample-factory", "async_cartpole")},
        )
    return found


def ours(vectorization: str, seeds: Iterator[int]) -> float:
    """Steps learned from per second of the run's own clock, from its start to its end, all evaluations included.

    Steps that were collected and then dropped as too old do not count. 0 for a run whose evaluations never reached the
    stop value: fast without learning is worth nothing. When it was reached, and the most memory that the herd had, go
    to stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        settings = ["--set", f"env.vectorization={vectorization}", "--seed", str(next(seeds))]
        command = [sys.executable, "-m", "remuda.cli", "launch", str(CONFIG), "--run-dir", str(run_dir), *settings]
        with _MemoryWatch() as memory:
            done = process.run(command, deadline_s=DEADLINE_S)
        if done.status != 0:
            raise RuntimeError(f"remuda launch ended with status {done.status}: {done.errors[-1_000:]}")
        run = _read(done.output, run_dir)
    solved = "never" if run.solved_s is None else f"after {run.solved_s:.1f} s"
    facts = f"{run.learned_env_steps} steps in {run.wall_s:.1f} s, {STOP_VALUE:g} reached {solved}"
    most_mib = memory.most_bytes / 2**20
    print(f"async_throughput, {vectorization}: {facts}, at most {most_mib:.0f} MiB", file=sys.stderr, flush=True)
    return 0.0 if run.solved_s is None else run.learned_env_steps / run.wall_s


@dataclass(frozen=True)
class _Run:
    learned_env_steps: int
    wall_s: float
    solved_s: float | None


def _read(output: str, run_dir: Path) -> _Run:
    """The counters that the command printed at the end, and when progress.txt has the first good evaluation."""
    counters = re.search(r"^env_step (\d+), train_iter (\d+), ([0-9.]+) s$", output, re.MULTILINE)
    if not counters:
        raise RuntimeError(f"remuda launch printed no counters: {output[-1_000:]}")
    plan = row_plan(load_config(CONFIG).config)
    learned = int(counters[2]) * plan.rows_per_update * plan.slots_per_row
    with (run_dir / "progress.txt").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    solved_s = (float(row["Time"]) for row in rows if float(row["AverageTestEpRet"]) >= STOP_VALUE)
    return _Run(min(int(counters[1]), learned), float(counters[3]), next(solved_s, None))


class _MemoryWatch:
    """The most memory of all our descendants together, shared pages counted once (PSS), looked at now and then."""

    def __init__(self) -> None:
        self.most_bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10.0)

    def _watch(self) -> None:
        while not self._over.wait(MEMORY_INTERVAL_S):
            self.most_bytes = max(self.most_bytes, sum(map(_pss_bytes, psutil.Process().children(recursive=True))))


def _pss_bytes(child: psutil.Process) -> int:
    try:
        return int(child.memory_full_info().pss)
    except psutil.Error:  # it has ended
        return 0


if __name__ == "__main__":
    main(figures)
