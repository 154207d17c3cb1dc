"""An environment is tried before anything is started, and put away again."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.make import check_environment, require_same
from remuda.environments.spaces import Space, packed_space

MODULE = """
import gymnasium
closed = []
class Tracked(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(5)
    def close(self):
        import pathlib
        (pathlib.Path(__file__).parent / "closed").touch()
def make():
    return Tracked()
def broken():
    raise RuntimeError("no display")
"""


def config_of(env: EnvConfig, source_dir: Path | None = None) -> ExperimentConfig:
    return ExperimentConfig(name="x", env=env, source_dir=None if source_dir is None else str(source_dir))


def test_it_returns_the_spaces_and_closes_the_environment(tmp_path: Path) -> None:
    (tmp_path / "checked_env.py").write_text(MODULE)
    observation, action = check_environment(config_of(EnvConfig(make="checked_env:make"), tmp_path))
    assert observation == spaces.Box(-1, 1, (3,))
    assert action == spaces.Discrete(5)
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        (EnvConfig(id="CartPol-v1"), "CartPol"),
        (EnvConfig(make="no_such_module_here:make"), "no_such_module_here"),
        (EnvConfig(make="broken_env:nothing"), "nothing"),
        (EnvConfig(make="broken_env:broken"), "no display"),
    ],
)
def test_what_cannot_be_built_is_named(tmp_path: Path, env: EnvConfig, reason: str) -> None:
    (tmp_path / "broken_env.py").write_text(MODULE)
    with pytest.raises(EnvironmentBuildError, match=reason):
        check_environment(config_of(env, tmp_path))


def parts_of(first: spaces.Box, second: spaces.Box) -> Space:
    return packed_space(spaces.Dict({"a": first, "b": second}))


TWO, THREE = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (3,))
PARTS, SWITCHES = parts_of(TWO, THREE), spaces.MultiDiscrete([2, 3])


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ((parts_of(THREE, TWO), SWITCHES), "observation"),
        ((packed_space(spaces.Dict({"a": TWO, "c": THREE})), SWITCHES), "observation"),
        ((PARTS, spaces.MultiDiscrete([2, 3], start=[1, 0])), "action"),
    ],
)
def test_a_task_of_other_parts_or_first_actions_does_not_fit(other: tuple[Space, Space], what: str) -> None:
    with pytest.raises(EnvironmentBuildError, match=f"its {what} space is"):
        require_same("evaluator.env", (PARTS, SWITCHES), other)


def test_bounds_of_observations_may_differ_between_tasks_and_of_actions_may_not() -> None:
    wider = parts_of(spaces.Box(-9, 9, (2,)), THREE)
    require_same("evaluator.env", (PARTS, SWITCHES), (wider, SWITCHES))
    with pytest.raises(EnvironmentBuildError, match="its action space is"):
        require_same("evaluator.env", (SWITCHES, TWO), (SWITCHES, spaces.Box(-9, 9, (2,))))


def test_of_several_agents_it_returns_the_spaces_of_those_of_the_policy(tmp_path: Path) -> None:
    (tmp_path / "checked_game.py").write_text(
        "from remuda.tests.environments.leaving import Leaving\n"
        "MADE = []\n"
        "def make():\n"
        "    MADE.append(Leaving([1, 2]))\n"
        "    return MADE[-1]\n"
    )
    game = EnvConfig(kind="pettingzoo", make="checked_game:make", agents=("a1", "a0"))
    observation, action = check_environment(config_of(game, tmp_path))
    assert observation == spaces.Box(-1.0, 1e6, (3,), np.float32)
    assert action == spaces.Discrete(3)
    assert [game.closed for game in sys.modules["checked_game"].MADE] == [True]
    with pytest.raises(EnvironmentBuildError, match="the environment has no agent b; its agents are a0, a1"):
        check_environment(config_of(game.model_copy(update={"agents": ("a0", "b")}), tmp_path))
