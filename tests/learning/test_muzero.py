"""The MuZero examples solve CartPole: the fast one v1, the one with LightZero's settings v0."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.tests.learning.test_cartpole import DEADLINE_S, solve

EXAMPLES = Path(__file__).parents[2] / "examples"
FAST, LIKE_LIGHTZERO = EXAMPLES / "cartpole_gumbel_muzero.yaml", EXAMPLES / "cartpole_muzero.yaml"
SEEDS = range(5)
LONG_S = 4 * DEADLINE_S
"""Limit of one run with LightZero's settings, mostly for large matrix products."""


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
@pytest.mark.timeout(DEADLINE_S + 10)
def test_one_seed_in_one_process(tmp_path: Path) -> None:
    """A lower goal than that of `make learning`: random actions stay below 30."""
    assert solve("train", 0, tmp_path / "run", FAST, goal=100.0) is not None


@pytest.mark.learning
@pytest.mark.processes
@pytest.mark.timeout(len(SEEDS) * LONG_S)
@pytest.mark.parametrize("verb", ["train", "launch"])
@pytest.mark.parametrize(("config", "goal"), [(FAST, 475.0), (LIKE_LIGHTZERO, 195.0)], ids=["fast", "as LightZero"])
def test_five_of_five_seeds(config: Path, goal: float, verb: str, tmp_path: Path) -> None:
    results = {seed: solve(verb, seed, tmp_path / f"{verb}_{seed}", config, goal, deadline_s=LONG_S) for seed in SEEDS}
    assert all(result is not None for result in results.values()), results
