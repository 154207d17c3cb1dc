"""The examples of SAC and TD3 learn Pendulum-v1: a mean return of -200 over ten episodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.tests.learning.test_cartpole import DEADLINE_S, SEEDS, solve

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
@pytest.mark.timeout(2 * DEADLINE_S)
def test_one_seed(tmp_path: Path) -> None:
    """A lower goal than that of `make learning`: random actions stay near -1200."""
    config = EXAMPLES / "pendulum_sac.yaml"
    assert solve("train", 0, tmp_path / "run", config, goal=-700.0, interval_env_steps=500) is not None


@pytest.mark.learning
@pytest.mark.processes
@pytest.mark.timeout(len(SEEDS) * DEADLINE_S)
@pytest.mark.parametrize(("algorithm", "verb"), [("sac", "train"), ("sac", "launch"), ("td3", "train")])
def test_nine_of_ten_seeds(algorithm: str, verb: str, tmp_path: Path) -> None:
    config = EXAMPLES / f"pendulum_{algorithm}.yaml"
    results = {seed: solve(verb, seed, tmp_path / f"{verb}_{seed}", config, goal=-200.0) for seed in SEEDS}
    assert sum(result is not None for result in results.values()) >= 9, results
