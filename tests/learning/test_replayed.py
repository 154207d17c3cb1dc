"""The examples of Rainbow, R2D2 and discrete SAC solve CartPole-v1."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.tests.learning.test_cartpole import DEADLINE_S, solve

EXAMPLES = Path(__file__).parents[2] / "examples"
SEEDS = range(5)


@pytest.mark.learning
@pytest.mark.processes
@pytest.mark.timeout(2 * len(SEEDS) * DEADLINE_S)
@pytest.mark.parametrize("algorithm", ["rainbow", "r2d2", "sac"])
def test_every_seed(algorithm: str, tmp_path: Path) -> None:
    config = EXAMPLES / f"cartpole_{algorithm}.yaml"
    results = [solve("train", seed, tmp_path / f"{seed}", config, deadline_s=2 * DEADLINE_S) for seed in SEEDS]
    assert all(results), results
