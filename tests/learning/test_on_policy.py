"""The on-policy examples solve CartPole-v1, each in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.tests.learning.test_cartpole import DEADLINE_S, SEEDS, solve

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
@pytest.mark.timeout(2 * DEADLINE_S)
@pytest.mark.parametrize(("algorithm", "verb", "goal"), [("ppo", "train", 195.0), ("impala", "launch", 195.0)])
def test_one_seed(algorithm: str, verb: str, goal: float, tmp_path: Path) -> None:
    """A lower goal than that of `make learning`: random actions stay below 30."""
    config = EXAMPLES / f"cartpole_{algorithm}.yaml"
    assert solve(verb, 0, tmp_path / "run", config, goal, interval_env_steps=2000) is not None


@pytest.mark.learning
@pytest.mark.processes
@pytest.mark.timeout(len(SEEDS) * DEADLINE_S)
@pytest.mark.parametrize(
    ("algorithm", "verb"),
    [("pqn", "train"), ("ppo", "train"), ("ppo", "launch"), ("impala", "train"), ("impala", "launch")],
)
def test_nine_of_ten_seeds(algorithm: str, verb: str, tmp_path: Path) -> None:
    config = EXAMPLES / f"cartpole_{algorithm}.yaml"
    results = {seed: solve(verb, seed, tmp_path / f"{verb}_{seed}", config) for seed in SEEDS}
    assert sum(result is not None for result in results.values()) >= 9, results
