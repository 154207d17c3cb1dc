"""Seconds from the command to the end of a parallel run of DQN that solves CartPole-v0, with DI-engine's settings."""

from __future__ import annotations

import functools
import itertools
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from remuda.benchmarks import process
from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.peers import peer

CONFIG = Path(__file__).parent / "configs" / "dqn_parallel.yaml"
N = 3
DEADLINE_S = 180.0


def figures(peers: bool) -> list[Figure]:
    """Start of all processes and their end included. A run of the peer's that is cut off after 150 s counts as 150."""
    if not peers:
        return []
    return compare(
        "dqn_parallel",
        unit="s",
        goal="<= 0.1",
        ours=functools.partial(ours, itertools.count()),
        references={"di-engine": functools.partial(theirs, itertools.count())},
        n=N,
    )


def ours(seeds: Iterator[int]) -> float:
    """`remuda launch` as a user types it; infinite for a run that does not get there."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "remuda.cli", "launch", str(CONFIG), "--seed", str(next(seeds))]
        begin_s = time.perf_counter()
        done = process.run([*command, "--run-dir", f"{folder}/run"], deadline_s=DEADLINE_S)
        elapsed_s = time.perf_counter() - begin_s
    if done.status != 0:
        raise RuntimeError(f"remuda launch ended with status {done.status}: {done.errors[-1_000:]}")
    return elapsed_s if "stop_value" in done.output else math.inf


def theirs(seeds: Iterator[int]) -> float:
    """The script starts the pipeline as a process of its own and watches it."""
    return peer("di-engine", "dqn_parallel", "--seed", str(next(seeds)), deadline_s=DEADLINE_S)()


if __name__ == "__main__":
    main(figures)
