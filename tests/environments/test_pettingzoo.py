"""PettingZoo's own environments are built by the names of their modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.copies import agents_of
from remuda.environments.errors import EnvironmentBuildError
from remuda.runner.serial import Start
from remuda.tests.runner.runs import run_tiny

RPS = "pettingzoo.classic.rps_v2"
pytest.importorskip(RPS, reason="needs pip install 'remuda[pettingzoo]'")


def test_a_version_that_is_not_there_is_told_from_a_package_that_is_missing() -> None:
    with pytest.raises(EnvironmentBuildError, match=r"did you mean pettingzoo\.classic\.rps_v2\?"):
        agents_of(EnvConfig(kind="pettingzoo", id="pettingzoo.classic.rps_v1"), source_dir=None)


def test_rock_paper_scissors_is_played_by_two_policies(tmp_path: Path) -> None:
    """Episodes of 15 rounds; what one wins the other loses."""
    config = ExperimentConfig.model_validate(
        {
            "name": "rps",
            "env": {"kind": "pettingzoo", "id": RPS, "num_envs": 2, "kwargs": {"num_actions": 3, "max_cycles": 15}},
            "policies": {"left": {"agents": ["player_0"]}, "right": {"agents": ["player_1"]}},
            "policy": {"type": "ppo", "hidden": [8], "horizon_steps": 16},
            "evaluator": {"episodes": 4, "interval_env_steps": 100},
            "stop": {"max_env_steps": 200},
        }
    )
    result = run_tiny(config, Start(tmp_path / "run"))
    assert result.reason == "max_env_steps", result.explanation
    best = {name: one.best for name, one in result.policies.items()}
    assert all(best.values())
    left, right = (one.counters for one in result.policies.values())
    assert left.episode == right.episode > 0
