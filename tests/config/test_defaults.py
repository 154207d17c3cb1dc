"""What a config leaves out is what the algorithm's authors chose; an explicit value always wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.defaults import wrong_default
from remuda.config.dump import sources
from remuda.config.errors import ConfigError
from remuda.config.load import load_config, load_settings
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Section

IMPALA = {"policy": {"type": "impala"}}


def config(**settings: Any) -> ExperimentConfig:
    return load_settings({"name": "a", "env": {"id": "CartPole-v1"}, **settings}, folder=Path()).config


def test_built_in_defaults_are_settings_and_none_repeats_the_schema() -> None:
    plain = config().model_copy()
    sections = {name: type(inside) for name, inside in plain if isinstance(inside, Section)}
    for kind in (one.settings for one in BUILT_IN.values()):
        assert wrong_default(kind, sections) is None
        for key, value in kind.defaults.items():
            section, name = key.split(".")
            assert value != sections[section].model_fields[name].get_default(), f"{kind.__name__}: {key}"


def test_the_file_beats_the_algorithm_and_the_command_line_beats_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: a\nenv: {id: x}\npolicy: {type: sac}\nlearner: {batch_size: 64, max_grad_norm: 10}\n")
    loaded = load_config(path, overrides=["buffer.prioritized=true", "learner.max_grad_norm=1"])
    learner, buffer = loaded.config.learner, loaded.config.buffer
    assert (learner.batch_size, learner.max_grad_norm, buffer.prioritized) == (64, 1.0, True)
    found = {key: source["source"] for key, source in sources(loaded).items()}
    assert found["learner.batch_size"] == "file"
    assert found["learner.max_grad_norm"] == found["buffer.prioritized"] == "command line"
    assert found["learner.learning_rate"] == found["env.num_envs"] == "algorithm"
    assert found["learner.device"] == found["policy.discount"] == "default"


def test_a_config_that_is_whole_does_not_change() -> None:
    """As that of a run folder from a version with other defaults."""
    whole = config(policy={"type": "sac"}, learner={"max_grad_norm": 10}).model_dump(mode="json")
    whole["learner"] |= {"batch_size": 64, "learning_rate": 1e-3, "publish_interval_iters": 10}
    assert config(**whole).model_dump(mode="json") == whole


def test_several_policies_have_the_defaults_of_their_own_algorithms() -> None:
    env = {"kind": "pettingzoo", "id": "pettingzoo.butterfly.cooperative_pong_v6"}
    two = {"hunter": {"agents": ["a"], "policy": {"type": "sac"}}, "hunted": {"agents": ["b"]}}
    both = config(env=env, policy={"type": "ppo"}, learner={"learning_rate": 0.5}, policies=two)
    hunter, hunted = both.policies["hunter"], both.policies["hunted"]
    assert (hunter.learner.max_grad_norm, hunter.buffer.prioritized) == (None, False)
    assert hunted.learner.max_grad_norm == 0.5
    assert hunter.learner.learning_rate == hunted.learner.learning_rate == 0.5, "given for all"
    assert both.env.num_envs == 8, "shared sections have those of the whole config's algorithm"


@pytest.mark.parametrize(
    ("learner", "settings"),
    [
        ({}, {"eps": 1e-5}),
        ({"optimizer": "adam"}, {"eps": 1e-5}),
        ({"optimizer_settings": {"betas": [0.8, 0.9]}}, {"betas": [0.8, 0.9]}),
        ({"optimizer": "rmsprop"}, {}),
        ({"optimizer": "torch.optim:SGD"}, {}),
    ],
)
def test_optimizer_settings_are_for_their_optimizer(learner: dict[str, object], settings: dict[str, object]) -> None:
    assert config(policy={"type": "ppo"}, learner=learner).learner.optimizer_settings == settings


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
    as_long = {"policy": {"type": "ppo", "horizon_steps": 20}}
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
