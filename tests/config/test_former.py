"""Settings of former versions are read as today's: configs and runs from before can still be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.current import values_at
from remuda.config.errors import ConfigError
from remuda.config.load import load_settings
from remuda.config.schema import ExperimentConfig


def loaded(policy: dict[str, Any], **settings: Any) -> ExperimentConfig:
    given = {"name": "a", "env": {"id": "CartPole-v1"}, "policy": policy, **settings}
    return load_settings(given, folder=Path()).config


def test_settings_of_the_optimizer_move_there() -> None:
    rainbow = loaded({"type": "rainbow", "adam_epsilon": 1e-3})
    assert rainbow.learner.optimizer_settings == {"eps": 1e-3}
    decayed = loaded({"type": "muzero", "weight_decay": 0.5}, learner={"optimizer_settings": {"eps": 1.0}})
    assert decayed.learner.optimizer_settings == {"eps": 1.0, "weight_decay": 0.5}


def test_a_fall_becomes_schedules() -> None:
    ppo = loaded({"type": "ppo", "anneal_env_steps": 100}, learner={"learning_rate": 4e-4})
    assert values_at(ppo, 25, {}) == pytest.approx({"learner.learning_rate": 3e-4, "policy.clip": 0.15})
    impala = loaded({"type": "impala", "anneal_env_steps": 100})
    assert values_at(impala, 50, {}) == pytest.approx({"learner.learning_rate": 2.5e-4})
    assert values_at(loaded({"type": "ppo", "anneal_env_steps": None}), 50, {}) == {}


def test_each_of_several_policies_is_read_so() -> None:
    own = {"agents": ["x"], "policy": {"type": "rainbow", "adam_epsilon": 1e-3}}
    named = {"a": own, "b": {"agents": ["y"]}}
    config = loaded(
        {"type": "ppo", "anneal_env_steps": None}, env={"kind": "pettingzoo", "make": "m:f"}, policies=named
    )
    assert config.policies["a"].learner.optimizer_settings == {"eps": 1e-3}


@pytest.mark.parametrize("name", [name for name, known in BUILT_IN.items() if known.settings.formerly])
def test_a_stored_config_keeps_the_effects_of_its_version(name: str) -> None:
    """A run folder holds all settings of its version, so a setting that is missing there came later."""
    kind = BUILT_IN[name].settings
    stored = kind.model_validate({"type": name}).model_dump(mode="json", exclude=set(kind.formerly))
    env = {"id": "CartPole-v1" if "Discrete" in kind.acts_in else "Pendulum-v1"}
    read = loaded(stored, env=env).policy.model_dump(mode="json")
    assert {key: read[key] for key in kind.formerly} == dict(kind.formerly)
    own = loaded({"type": name}, env=env).policy.model_dump(mode="json")
    assert any(own[key] != value for key, value in kind.formerly.items())


@pytest.mark.parametrize(
    ("policy", "learner", "said"),
    [
        ({"type": "dqn", "adam_epsilon": 1.0}, {}, "policy.adam_epsilon: no such setting of dqn"),
        ({"type": "rainbow", "adam_epsilon": 1.0}, {"optimizer_settings": {"eps": 2.0}}, "policy.adam_epsilon"),
        ({"type": "rainbow", "adam_epsilon": -1.0}, {}, "learner.optimizer_settings: eps"),
        ({"type": "ppo", "anneal_env_steps": 9}, {"learning_rate": [[0, 1.0], [9, 0.5]]}, "learner.learning_rate[?]"),
    ],
)
def test_a_former_setting_without_place_is_named(policy: dict[str, Any], learner: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        loaded(policy, learner=learner)
