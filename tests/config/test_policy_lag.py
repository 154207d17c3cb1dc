"""By default collectors of IMPALA go on while the learner learns, and those of PPO wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.config.errors import ConfigError
from remuda.config.load import load_config, load_settings
from remuda.config.schema import ExperimentConfig

IMPALA, PPO, DQN = ({"policy": {"type": name}} for name in ("impala", "ppo", "dqn"))


def config(**settings: Any) -> ExperimentConfig:
    return load_settings({"name": "a", "env": {"id": "CartPole-v1"}, **settings}, folder=Path()).config


@pytest.mark.parametrize(
    ("settings", "lag"),
    [
        ({}, 0),
        (DQN, 0),
        (PPO, 0),
        (IMPALA, 4),
        ({**IMPALA, "buffer": {"quota_bytes": 1_000_000}}, 4),
        ({**IMPALA, "buffer": {"max_policy_lag": 0}}, 0),
        ({**IMPALA, "buffer": {"max_policy_lag": None}}, None),
        ({**PPO, "buffer": {"max_policy_lag": 2}}, 2),
    ],
)
def test_the_default_is_that_of_the_algorithm(settings: dict[str, Any], lag: int | None) -> None:
    assert config(**settings).buffer.max_policy_lag == lag


def test_it_is_set_on_the_command_line_and_comes_back_from_a_stored_config(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: a\nenv: {id: CartPole-v1}\n")
    strict = load_config(path, overrides=["policy.type=impala", "buffer.max_policy_lag=0"]).config
    assert strict.buffer.max_policy_lag == 0
    for each in (strict, load_config(path, overrides=["policy.type=impala"]).config):
        assert ExperimentConfig.model_validate_json(each.model_dump_json()) == each


@pytest.mark.parametrize(
    ("above", "own", "lags"),
    [
        ({}, {}, {"hunter": 4, "hunted": 0}),
        (IMPALA, {}, {"hunter": 4, "hunted": 0}),
        ({"buffer": {"max_policy_lag": 1}}, {}, {"hunter": 1, "hunted": 1}),
        ({}, {"buffer": {"max_policy_lag": 2}}, {"hunter": 2, "hunted": 0}),
    ],
)
def test_each_of_several_policies_has_its_own(above: Any, own: Any, lags: dict[str, int]) -> None:
    as_long = {"policy": {"type": "ppo", "horizon_steps": 32}}
    two = {"hunter": {"agents": ["a"], **IMPALA, **own}, "hunted": {"agents": ["b"], **as_long}}
    env = {"kind": "pettingzoo", "id": "pettingzoo.butterfly.cooperative_pong_v6"}
    settings = {"policy": {"type": "dqn"}, **above, "env": env, "policies": two}
    policies = config(**settings)
    assert {name: one.buffer.max_policy_lag for name, one in policies.policies.items()} == lags
    assert {name: policies.of_policy(name).buffer.max_policy_lag for name in lags} == lags


@pytest.mark.parametrize("wrong", [{"policy": 3}, {"policy": {"type": "impala"}, "buffer": 3}, {"policies": {"a": 3}}])
def test_nonsense_is_left_to_the_validation(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="should be a mapping of settings, not 3"):
        config(**wrong)
