"""Seconds from the start of training until DQN in serial mode has solved CartPole-v0, with DI-engine's settings."""

from __future__ import annotations

import functools
import itertools
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from remuda.benchmarks import process
from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.peers import peer
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder

CONFIG = Path(__file__).parent / "configs" / "dqn_serial.yaml"
SEEDS = 5
STOP_VALUE = 195.0
DEADLINE_S = 120.0


def figures(peers: bool) -> list[Figure]:
    """Both from when everything is built to the evaluation that reaches the value; the seeds are 0 to 4."""
    if not peers:
        return []
    return compare(
        "dqn_serial",
        unit="s",
        goal="<= 0.25",
        ours=functools.partial(ours, itertools.count()),
        references={"di-engine": functools.partial(theirs, itertools.count())},
        n=SEEDS,
    )


def ours(seeds: Iterator[int]) -> float:
    """By the run's own clock when it saves its last checkpoint, right after the evaluation that ends it; infinite for
    a run that does not get there."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "remuda.cli", "train", str(CONFIG), "--seed", str(next(seeds))]
        done = process.run([*command, "--run-dir", f"{folder}/run"], deadline_s=DEADLINE_S)
        if done.status != 0:
            raise RuntimeError(f"remuda train ended with status {done.status}: {done.errors[-1_000:]}")
        checkpoints = CheckpointIndex(RunFolder(Path(folder) / "run").ckpt)
        best, last = checkpoints.best, checkpoints.last
    if best is None or last is None or best.reward is None or best.reward < STOP_VALUE:
        return math.inf
    return last.wall_s


def theirs(seeds: Iterator[int]) -> float:
    """By the script's clock, from its learner's first hook to the end of its pipeline."""
    return peer("di-engine", "dqn_serial", "--seed", str(next(seeds)), deadline_s=DEADLINE_S)()


if __name__ == "__main__":
    main(figures)
