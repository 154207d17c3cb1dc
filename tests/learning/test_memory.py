"""A maze that needs memory is solved by the recurrent examples, and not without a recurrent core."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.tests.learning.test_cartpole import DEADLINE_S, solve

EXAMPLES = Path(__file__).parents[2] / "examples"
SOLVED = 0.9
"""Whoever cannot remember gets 0 on average; over 20 episodes 0.9 is out of reach."""
SEEDS = range(3)


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
@pytest.mark.timeout(2 * DEADLINE_S)
def test_one_seed(tmp_path: Path) -> None:
    assert solve("train", 0, tmp_path / "run", EXAMPLES / "t_maze_r2d2.yaml", SOLVED, interval_env_steps=1000)


@pytest.mark.learning
@pytest.mark.processes
@pytest.mark.timeout(2 * len(SEEDS) * DEADLINE_S)
@pytest.mark.parametrize("algorithm", ["r2d2", "ppo", "impala"])
def test_every_seed(algorithm: str, tmp_path: Path) -> None:
    config = EXAMPLES / f"t_maze_{algorithm}.yaml"
    results = [solve("train", seed, tmp_path / f"{seed}", config, SOLVED, deadline_s=2 * DEADLINE_S) for seed in SEEDS]
    assert all(results), results


@pytest.mark.learning
@pytest.mark.processes
@pytest.mark.timeout(2 * DEADLINE_S)
@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_without_a_core_nobody_solves_it(algorithm: str, tmp_path: Path) -> None:
    example = (EXAMPLES / f"t_maze_{algorithm}.yaml").read_text()
    assert "recurrent: gru" in example
    config = tmp_path / "forgetful.yaml"
    config.write_text(example.replace("recurrent: gru", "recurrent: null"))
    (tmp_path / "t_maze.py").write_text((EXAMPLES / "t_maze.py").read_text())
    assert solve("train", 0, tmp_path / "run", config, SOLVED, deadline_s=2 * DEADLINE_S) is None
