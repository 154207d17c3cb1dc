"""Settings that somebody gave and that have no effect are told with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.config.load import load_config, load_settings
from remuda.config.unused import unused_settings

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))
ONCE = "ppo has no replay, and learns from learner.segments_per_update segments at once"


def lines(**settings: Any) -> list[str]:
    return unused_settings(load_settings({"name": "a", "env": {"id": "CartPole-v1"}, **settings}, folder=Path()).config)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"policy": {"type": "ppo"}, "learner": {"batch_size": 256}},
            f"learner.batch_size is 256 and has no effect: {ONCE}",
        ),
        (
            {"policy": {"type": "ppo"}, "buffer": {"prioritized": False}},
            f"buffer.prioritized is false and has no effect: {ONCE}",
        ),
        (
            {"policy": {"type": "impala", "recurrent_units": 9}},
            "policy.recurrent_units is 9 and has no effect: policy.recurrent is null",
        ),
        ({"buffer": {"max_policy_lag": 4}}, "buffer.max_policy_lag is 4 and has no effect: dqn learns from a replay"),
        (
            {"buffer": {"prioritized": False, "priority_exponent": 0.9}},
            "buffer.priority_exponent is 0.9 and has no effect: buffer.prioritized is false",
        ),
        (
            {"policy": {"type": "rainbow", "epsilon_end": 0.0}},
            "policy.epsilon_end is 0.0 and has no effect: policy.noisy explores instead, unless policy.noisy_epsilon "
            "is true",
        ),
        (
            {"policy": {"type": "rainbow", "noisy": False, "noisy_sigma": 0.1}},
            "policy.noisy_sigma is 0.1 and has no effect: policy.noisy is false",
        ),
        (
            {"policy": {"type": "rainbow", "distribution": "quantile", "v_max": 500}},
            "policy.v_max is 500.0 and has no effect: policy.distribution is quantile, which needs no bounds",
        ),
        (
            {"policy": {"type": "sac", "temperature": 0.2, "target_entropy": -1}},
            "policy.target_entropy is -1.0 and has no effect: policy.temperature is given, so none is learned",
        ),
        (
            {"policy": {"type": "sac", "target_entropy": 0.3, "target_entropy_share": 0.3}},
            "policy.target_entropy_share is 0.3 and has no effect: policy.target_entropy is given",
        ),
        (
            {"policy": {"type": "muzero", "gumbel": True, "temperature_end": 0}},
            "policy.temperature_end is 0.0 and has no effect: policy.gumbel is true",
        ),
        (
            {"policy": {"type": "muzero", "gumbel_c_scale": 0.1}},
            "policy.gumbel_c_scale is 0.1 and has no effect: policy.gumbel is false",
        ),
        (
            {"policy": {"type": "muzero", "consistency_coefficient": 0, "projection_units": 8}},
            "policy.projection_units is 8 and has no effect: policy.consistency_coefficient is 0",
        ),
    ],
)
def test_it_is_told_what_has_no_effect(settings: dict[str, Any], told: str) -> None:
    assert lines(**settings) == [told]


@pytest.mark.parametrize(
    "settings",
    [
        {"policy": {"type": "ppo", "recurrent": "gru", "recurrent_units": 9}, "learner": {"segments_per_update": 4}},
        {"policy": {"type": "rainbow", "noisy_epsilon": True, "epsilon_end": 0.0, "v_max": 500}},
        {"policy": {"type": "sac", "target_entropy_share": 0.3, "initial_temperature": 0.1}},
        {"policy": {"type": "td3"}, "buffer": {"prioritized": True, "priority_exponent": 0.9}},
        {"policy": {"type": "ppo"}, "learner": {"batch_size": 64}},  # the default, as the config.json of a run has it
    ],
)
def test_what_has_an_effect_is_not_told(settings: dict[str, Any]) -> None:
    assert lines(**settings) == []


def test_several_policies_share_what_only_one_of_them_reads() -> None:
    two = {"hunter": {"agents": ["a"]}, "hunted": {"agents": ["b"], "policy": {"type": "ppo"}}}
    env = {"kind": "pettingzoo", "id": "pettingzoo.butterfly.cooperative_pong_v6"}
    assert lines(env=env, policies=two, learner={"batch_size": 256}) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_setting_of_the_examples_has_an_effect(example: Path) -> None:
    assert unused_settings(load_config(example).config) == []
