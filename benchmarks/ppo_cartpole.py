"""Seconds from the command until PPO has solved CartPole-v1, with settings tuned by stable-baselines3's zoo."""

from __future__ import annotations

import functools
import itertools
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from remuda.benchmarks import process
from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.peers import peer

CONFIG = Path(__file__).parent / "configs" / "ppo_cartpole.yaml"
N = 5
DEADLINE_S = 120.0
ONE_COLLECTOR = ("--set", "collector.count=1")
"""Strictly on-policy nobody collects while the learner learns, so one collector has a core to itself, and a batch comes
with one message."""


def figures(peers: bool) -> list[Figure]:
    """In one process (`remuda train`) and as a herd (`remuda launch`); there is no raw limit to compare with."""
    if not peers:
        return []
    found: list[Figure] = []
    for way, best, settings in (("train", "<= 0.5", ()), ("launch", "<= 0.4", ONE_COLLECTOR)):
        for name, goal, n in (("stable-baselines3", best, N), ("rllib", "<= 0.2", 3)):
            found += compare(
                f"ppo_cartpole_{way}",
                unit="s",
                goal=goal,
                ours=functools.partial(ours, "train" if way == "train" else "launch", itertools.count(), *settings),
                references={name: functools.partial(theirs, name, itertools.count())},
                n=n,
            )
    return found


def ours(way: Literal["train", "launch"], seeds: Iterator[int], *settings: str) -> float:
    """From the command to its end, each time with the next seed; infinite for a run that does not get there."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "remuda.cli", way, str(CONFIG), "--seed", str(next(seeds))]
        begin_s = time.perf_counter()
        done = process.run([*command, "--run-dir", f"{folder}/run", *settings], deadline_s=DEADLINE_S)
        elapsed_s = time.perf_counter() - begin_s
    if done.status != 0:
        raise RuntimeError(f"remuda {way} ended with status {done.status}: {done.errors[-1_000:]}")
    return elapsed_s if "stop_value" in done.output else math.inf


def theirs(name: str, seeds: Iterator[int]) -> float:
    """From the peer's command to its end, likewise. Its script knows the stop value and the most it may take."""
    measure = peer(name, "ppo_cartpole", "--seed", str(next(seeds)), deadline_s=200.0)
    begin_s = time.perf_counter()
    measure()
    return time.perf_counter() - begin_s


if __name__ == "__main__":
    main(figures)
