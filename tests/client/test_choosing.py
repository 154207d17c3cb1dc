"""From an algorithm and an environment to settings: stored ones, sensible ones, and what beats them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from remuda.client.beginning import choose
from remuda.config.algorithms.actor_critic import PpoConfig
from remuda.config.algorithms.base import EXAMPLES
from remuda.config.errors import ConfigError
from remuda.config.load import load_config
from remuda.config.readers import parse_override
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.make import check_environment
from remuda.policy.algorithms import make_policy
from remuda.policy.spaces import ActionSpec, ObservationSpec


class Pictures(gymnasium.Env[np.ndarray, np.int64]):
    """Observations are images."""

    observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)


class Pushes(gymnasium.Env[np.ndarray, np.ndarray]):
    """Actions are numbers."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float64)

    def __init__(self, bound: float = 1.0) -> None:
        self.action_space = gymnasium.spaces.Box(-bound, bound, (1,), np.float32)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register("Pictures-v0", entry_point=lambda **kwargs: Pictures())
    gymnasium.register("Pushes-v0", entry_point=lambda **kwargs: Pushes())
    yield
    del gymnasium.registry["Pictures-v0"], gymnasium.registry["Pushes-v0"]


def test_stored_settings_are_those_of_the_file_and_the_command_line_beats_them(tmp_path: Path) -> None:
    overrides = [parse_override("learner.learning_rate=0.5")]
    choice = choose("ppo", "Pendulum-v1", overrides=overrides, seed=3, folder=tmp_path)
    stored = load_config(EXAMPLES / "pendulum_ppo.yaml").config
    expected = stored.model_copy(
        update={
            "seed": 3,
            "learner": stored.learner.model_copy(update={"learning_rate": 0.5}),
            "source_dir": str(tmp_path),
        }
    )
    assert choice.loaded.config == expected
    assert choice.loaded.path == EXAMPLES / "pendulum_ppo.yaml"
    assert choice.summary == "ppo on Pendulum-v1: settings of pendulum_ppo.yaml"


@pytest.mark.parametrize(
    ("env_id", "kind", "learning_rate", "normalised"),
    [
        ("MountainCar-v0", "Discrete actions", 5e-4, True),
        ("Pushes-v0", "Box actions", 3e-4, True),
        ("Pictures-v0", "images", 2.5e-4, False),
    ],
)
def test_spaces_decide_settings(env_id: str, kind: str, learning_rate: float, normalised: bool, tmp_path: Path) -> None:
    choice = choose("ppo", env_id, folder=tmp_path)
    config = choice.loaded.config
    assert isinstance(config.policy, PpoConfig)
    assert config.policy.normalize_observations is config.policy.normalize_rewards is normalised
    assert config.learner.learning_rate == learning_rate
    assert choice.summary.startswith(f"ppo on {env_id}: no settings are stored, so those for {kind} are taken.")
    assert "Pendulum-v1" in choice.summary
    assert config.source_dir == str(tmp_path)


def test_an_algorithm_without_sensible_settings_has_its_defaults(tmp_path: Path) -> None:
    choice = choose("impala", "Acrobot-v1", overrides=[parse_override("env.num_envs=3")], folder=tmp_path)
    assert choice.loaded.config.name == "impala_Acrobot-v1"
    assert choice.loaded.config.env.num_envs == 3
    assert choice.summary == (
        "impala on Acrobot-v1: no settings are stored, so the defaults are taken. "
        "Stored for impala: ALE/Pong-v5, CartPole-v1"
    )


def test_auto_takes_the_recommended_algorithm(tmp_path: Path) -> None:
    expected = {"Pushes-v0": "crossq", "Pendulum-v1": "crossq", "MountainCar-v0": "ppo", "Pictures-v0": "ppo"}
    for env_id, algorithm in expected.items():
        choice = choose("auto", env_id, overrides=[parse_override("learner.batch_size=32")], seed=3, folder=tmp_path)
        own = choose(algorithm, env_id, overrides=[parse_override("learner.batch_size=32")], seed=3, folder=tmp_path)
        assert choice.loaded.config == own.loaded.config
        assert choice.summary.startswith(f"auto: {algorithm}, as recommended for")


def test_auto_takes_ppo_for_actions_without_bounds(tmp_path: Path) -> None:
    gymnasium.register("Boundless-v0", entry_point=lambda **kwargs: Pushes(bound=np.inf))
    try:
        choice = choose("auto", "Boundless-v0", folder=tmp_path)
    finally:
        del gymnasium.registry["Boundless-v0"]
    assert choice.summary.startswith("auto: ppo, as recommended for Box actions without bounds. ppo on Boundless-v0")


def test_an_environment_of_the_users_own_is_a_function_and_an_id_has_a_version(tmp_path: Path) -> None:
    lines = (
        "import gymnasium",
        "gymnasium.register('Barn-v0', lambda: make())",
        "make = lambda: gymnasium.make('Acrobot-v1')",
    )
    (tmp_path / "barn.py").write_text("\n".join(lines))
    for given, setting in (("barn:make", {"make": "barn:make"}), ("barn:Barn-v0", {"id": "barn:Barn-v0"})):
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(tmp_path)
            env = choose("ppo", given, folder=tmp_path).loaded.config.env
        assert {name: getattr(env, name) for name in setting} == setting


def test_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.type"):
        choose("poo", "Taxi-v3", folder=tmp_path)
    with pytest.raises(EnvironmentBuildError, match="did you mean"):
        choose("ppo", "CartPol-v1", folder=tmp_path)


def test_observations_of_several_parts_are_not_normalised(tmp_path: Path) -> None:
    """Which networks refuse: a run with the chosen settings begins."""
    gymnasium.register("Parts-v0", entry_point="remuda.tests.environments.structured:Grid")
    try:
        config = choose("ppo", "Parts-v0", folder=tmp_path).loaded.config
        observation, action = check_environment(config)
    finally:
        del gymnasium.registry["Parts-v0"]
    assert isinstance(config.policy, PpoConfig)
    assert not config.policy.normalize_observations
    make_policy(config, ObservationSpec.of(observation), ActionSpec.of(action))
