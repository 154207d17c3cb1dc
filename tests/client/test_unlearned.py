"""A run that was over before its first update says what that would have needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.client.running import why_nothing_was_learned
from remuda.config.load import load_settings
from remuda.config.schema import ExperimentConfig


def config(**settings: Any) -> ExperimentConfig:
    given = {"name": "a", "env": {"id": "CartPole-v1", "num_envs": 4}, **settings}
    return load_settings(given, folder=Path()).config


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"policy": {"type": "dqn"}},
            "about 1020 environment steps (buffer.min_rows is 1000 rows, learner.batch_size 64)",
        ),
        ({"policy": {"type": "dqn"}, "buffer": {"samples_per_insert": None}}, "about 1013 environment steps"),
        ({"policy": {"type": "r2d2"}}, "about 40320 environment steps (buffer.min_rows is 1000 sequences,"),
        (
            {"policy": {"type": "ppo"}, "collector": {"count": 3}},
            "about 768 environment steps (12 segments of 64 steps)",
        ),
    ],
)
def test_it_says_how_many_steps_the_first_update_needs(settings: dict[str, Any], said: str) -> None:
    text = why_nothing_was_learned(config(**settings), reason="max_env_steps", train_iter=0)
    assert text is not None
    assert text.startswith("nothing was learned: the first update needs ")
    assert said in text
    assert "Raise stop.max_env_steps, or lower " in text


def test_several_policies() -> None:
    two = {"hunter": {"agents": ["a"]}, "hunted": {"agents": ["b"], "policy": {"type": "ppo"}}}
    env = {"kind": "pettingzoo", "id": "pettingzoo.butterfly.cooperative_pong_v6"}
    text = why_nothing_was_learned(config(env=env, policies=two), reason="max_env_steps", train_iter=0)
    assert text is not None
    assert "buffer.min_rows is 1000 rows" in text


@pytest.mark.parametrize(
    ("reason", "train_iter", "learner"),
    [
        ("max_env_steps", 1, {}),
        ("stop_value", 0, {}),
        ("stopped", 0, {}),
        (None, 0, {}),
        ("max_env_steps", 0, {"inference": True}),
    ],
)
def test_there_is_nothing_to_say(reason: str | None, train_iter: int, learner: dict[str, Any]) -> None:
    """Something was learned, nothing was to be, or the run had another end than its steps."""
    assert why_nothing_was_learned(config(learner=learner), reason=reason, train_iter=train_iter) is None
