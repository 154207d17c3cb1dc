"""SAC on HalfCheetah-v5 with the paper's settings: updates per second, and seconds for equal environment steps."""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from remuda.benchmarks import process
from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.peers import peer
from remuda.benchmarks.rounds import Rounds, Run
from remuda.config.load import load_config

CONFIG = Path(__file__).parents[1] / "examples" / "half_cheetah_sac.yaml"
ENV_STEPS = 8_000
LEARNING_STARTS = 1_000
"""Steps of random actions, before the first update."""
FEATURES, NUMBERS, ROWS = 17, 6, 256
WARM_UP, UPDATES = 100, 1_000
DEADLINE_S = 1_800.0
N = 3


def figures(peers: bool) -> Iterator[Figure]:
    """The update alone, and whole runs in one process (`remuda train`) and as a herd (`remuda launch`), both with one
    update per environment step and no evaluation before the end."""
    if not peers:
        return
    yield from compare(
        "sac_updates",
        unit="updates/s",
        goal=">= 2.5",
        ours=updates_per_s,
        references={"stable-baselines3": peer("stable-baselines3", "sac_half_cheetah", "updates", deadline_s=600.0)},
        n=N,
    )
    rounds = Rounds(
        {
            "train": functools.partial(ours, "train"),
            "launch": functools.partial(ours, "launch"),
            "stable-baselines3": theirs,
        }
    )
    for way in ("train", "launch"):
        yield from compare(
            f"sac_half_cheetah_{way}",
            unit="s",
            goal="<= 0.4",
            ours=rounds.measure(way, _seconds),
            references={"stable-baselines3": rounds.measure("stable-baselines3", _seconds)},
            n=N,
        )


def updates_per_s() -> float:
    """Of the learning side alone, on one batch in memory: one thread, and the precision that a run in one process
    takes."""
    import torch

    from remuda.learner.precision import choose_precision
    from remuda.policy.algorithms import make_algorithm
    from remuda.policy.spaces import ActionSpec, ObservationSpec

    torch.set_num_threads(1)
    config = load_config(CONFIG).config
    action = ActionSpec(None, 0, "float32", (NUMBERS,), (-1.0,) * NUMBERS, (1.0,) * NUMBERS)
    algorithm = make_algorithm(config, ObservationSpec((FEATURES,), "float64"), action, 0)
    choose_precision(config, algorithm, timed=False, say=lambda text: None)
    batch = _batch(np.random.default_rng(0))
    for _ in range(WARM_UP):
        algorithm.learn(batch)
    begin_s = time.perf_counter()
    for _ in range(UPDATES):
        algorithm.learn(batch)
    return UPDATES / (time.perf_counter() - begin_s)


def _batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "obs": rng.normal(size=(ROWS, FEATURES)).astype(np.float32),
        "next_obs": rng.normal(size=(ROWS, FEATURES)).astype(np.float32),
        "action": rng.uniform(-1.0, 1.0, (ROWS, NUMBERS)).astype(np.float32),
        "reward": rng.normal(size=ROWS).astype(np.float32),
        "discount": np.full(ROWS, 0.99, np.float32),
        "weights": np.ones(ROWS, np.float32),
    }


def ours(way: Literal["train", "launch"], seed: int) -> Run:
    """From the command to its end."""
    settings = (
        f"stop.max_env_steps={ENV_STEPS}",
        f"buffer.min_rows={LEARNING_STARTS}",
        "policy.random_env_steps=null",
        "evaluator.episodes=0",
        "checkpoint.interval_env_steps=null",
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "remuda.cli", way, str(CONFIG), "--seed", str(seed)]
        command += [word for setting in settings for word in ("--set", setting)]
        begin_s = time.perf_counter()
        done = process.run([*command, "--run-dir", f"{folder}/run"], deadline_s=DEADLINE_S)
        elapsed_s = time.perf_counter() - begin_s
    if done.status != 0:
        raise RuntimeError(f"remuda {way} ended with status {done.status}: {done.errors[-1_000:]}")
    return Run(elapsed_s, ENV_STEPS)


def theirs(seed: int) -> Run:
    """Seconds from the peer's command to its end, likewise."""
    steps = ("run", "--env-steps", str(ENV_STEPS), "--learning-starts", str(LEARNING_STARTS))
    measure = peer("stable-baselines3", "sac_half_cheetah", *steps, "--seed", str(seed), deadline_s=DEADLINE_S)
    begin_s = time.perf_counter()
    measure()
    return Run(time.perf_counter() - begin_s, ENV_STEPS)


def _seconds(run: Run) -> float:
    return run.seconds


if __name__ == "__main__":
    main(figures)
