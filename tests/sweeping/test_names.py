"""Names of variants: the rules of Spinning Up's ExperimentGrid, with its own examples."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from remuda.sweeping.names import default_shorthand, run_name, value_text, variant_name


@pytest.mark.parametrize(
    ("key", "shorthand"),
    [
        ("clip_ratio", "cli"),
        ("ac_kwargs.hidden_sizes", "ac-hid"),
        ("steps_per_epoch", "ste"),
        ("pi_lr", "pi"),
        ("learner.learning_rate", "lea-lea"),
        ("policy.n_step", "pol-ns"),
        ("env.id", "env-id"),
        ("env.kwargs.gravity", "env-kwa-gra"),
    ],
)
def test_shorthands(key: str, shorthand: str) -> None:
    assert default_shorthand(key) == shorthand


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0-1"),
        (3e-4, "0-0003"),
        (1e-5, "1e-05"),
        (64, "64"),
        (-1, "-1"),
        ([32, 32], "32-32"),
        ("CartPole-v0", "cartpole-v0"),
        ("ALE/Pong-v5", "ale-pong-v5"),
        ("a b_c", "a-b_c"),
        (None, "none"),
        ([[16, 3, 1], [8, 2, 1]], "16-3-1-8-2-1"),
        ({"id": "Pole", "x": [1, 2]}, "id-pole-x-1-2"),
    ],
)
def test_values(value: JsonValue, text: str) -> None:
    assert value_text(value) == text


def test_a_variant_is_named_by_what_varies() -> None:
    assert variant_name("cartpole", []) == "cartpole"
    assert variant_name("ppo", [("cli", 0.1), ("ac-hid", [64, 32])]) == "ppo_cli0-1_ac-hid64-32"


def test_booleans_appear_when_true_and_without_a_value() -> None:
    assert variant_name("dqn", [("pol-due", True), ("pol-dou", False), ("pol-ns", 3)]) == "dqn_pol-due_pol-ns3"


def test_a_run_is_a_variant_with_its_seed() -> None:
    assert run_name("ppo_cli0-1", 10) == "ppo_cli0-1_s10"


@settings(deadline=None)
@given(st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_any_value_makes_a_file_name(value: JsonValue) -> None:
    assert re.fullmatch(r"[-_A-Za-z0-9]*", value_text(value))
