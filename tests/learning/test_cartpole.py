"""The demo's config solves CartPole-v1: a mean return of 475 over ten episodes, for nine of ten seeds in both modes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "cartpole_dqn.yaml"
SEEDS = range(10)
REQUIRED = 9
SOLVED = 475.0
DEADLINE_S = 1_200.0
"""Limit of one run on a busy machine; a free one takes about half a minute."""


def solve(
    verb: str,
    seed: int,
    run_dir: Path,
    config: Path = EXAMPLE,
    goal: float = SOLVED,
    *,
    interval_env_steps: int | None = None,
    deadline_s: float = DEADLINE_S,
) -> float | None:
    """Train with this seed. Returns the best return if the goal was reached, else None. A hang is an error.

    `interval_env_steps`: steps between two evaluations, to end soon after the goal is reached; None: as in the config.
    """
    command = [sys.executable, "-P", "-m", "remuda.cli", verb, str(config), "--run-dir", str(run_dir)]
    command += ["--set", f"stop.stop_value={goal}"]
    if interval_env_steps is not None:
        command += ["--set", f"evaluator.interval_env_steps={interval_env_steps}"]
    done = subprocess.run(
        [*command, "--seed", str(seed)], capture_output=True, text=True, timeout=deadline_s, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"{verb} seed {seed}: {done.stdout.splitlines()[0]}; {done.stdout.splitlines()[1]}")
    index = json.loads((run_dir / "ckpt" / "index.json").read_text())
    rewards = {record["train_iter"]: record["reward"] for record in index["checkpoints"]}
    best = rewards[index["best"]]
    return best if best >= goal else None


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
@pytest.mark.timeout(DEADLINE_S + 10)
def test_one_seed_in_one_process(tmp_path: Path) -> None:
    """A lower goal than that of `make learning`: random actions stay below 30."""
    assert solve("train", 0, tmp_path / "run", goal=195.0) is not None


@pytest.mark.learning
@pytest.mark.processes
@pytest.mark.timeout(len(SEEDS) * DEADLINE_S)
@pytest.mark.parametrize("verb", ["train", "launch"])
def test_nine_of_ten_seeds(verb: str, tmp_path: Path) -> None:
    results = {seed: solve(verb, seed, tmp_path / f"{verb}_{seed}") for seed in SEEDS}
    assert sum(result is not None for result in results.values()) >= REQUIRED, results
