"""Reading a grid: what it comes to, and every problem of a wrong one with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from remuda.client.sweeps.grid import Grid, default_shorthand, read_grid, run_name, value_text, variant_name
from remuda.config.errors import ConfigError

GRID = """
name: cartpole
config: base.yaml
seeds: [0, 10]
grid:
  learner.learning_rate: {values: [1e-3, 3e-4], shorthand: lr}
  policy.dueling: [true, false]
  policy.hidden: [[64, 64]]
  env.id: {values: [CartPole-v1], in_name: true}
"""


def read(tmp_path: Path, text: str) -> Grid:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    return read_grid(path)


def test_every_combination_in_order(tmp_path: Path) -> None:
    grid = read(tmp_path, GRID)
    assert (grid.name, grid.config, grid.seeds) == ("cartpole", tmp_path / "base.yaml", (0, 10))
    variants = list(grid.variants())
    assert [variant.name for variant in variants] == [
        "cartpole_lr0-001_pol-due_env-idcartpole-v1",
        "cartpole_lr0-001_env-idcartpole-v1",
        "cartpole_lr0-0003_pol-due_env-idcartpole-v1",
        "cartpole_lr0-0003_env-idcartpole-v1",
    ]
    assert variants[1].settings == {
        "learner.learning_rate": 1e-3,
        "policy.dueling": False,
        "policy.hidden": [64, 64],
        "env.id": "CartPole-v1",
    }
    assert [(one.loc, one.value, one.source) for one in variants[1].overrides[:2]] == [
        (("learner", "learning_rate"), 1e-3, f"{tmp_path / 'grid.yaml'}:6"),
        (("policy", "dueling"), False, f"{tmp_path / 'grid.yaml'}:7"),
    ]


@pytest.mark.parametrize(("text", "seeds"), [("seeds: 3", (0, 1, 2)), ("seeds: [5]", (5,)), ("", None)])
def test_seeds(tmp_path: Path, text: str, seeds: tuple[int, ...] | None) -> None:
    assert read(tmp_path, f"name: a\nconfig: b.yaml\n{text}\n").seeds == seeds


def test_a_grid_of_seeds_alone_is_one_variant(tmp_path: Path) -> None:
    (variant,) = read(tmp_path, "name: a\nconfig: b.yaml\nseeds: 2\n").variants()
    assert (variant.name, variant.settings, variant.overrides) == ("a", {}, ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("config: b.yaml", "grid.yaml: name: is required"),
        ("name: a", "grid.yaml: config: is required"),
        ("name: a/b\nconfig: b.yaml", "grid.yaml:1: name: should be letters, digits, dots, hyphens and underscores"),
        ("name: a\nconfig: [1]", "grid.yaml:2: config: should be the path of a config, not [1]"),
        ("name: a\nconfig: b.yaml\nseed: 3", "grid.yaml:3: seed: unknown key of a grid; known keys: name, config"),
        ("name: a\nconfig: b.yaml\nseeds: 0", "grid.yaml:3: seeds: should be a number of seeds"),
        ("name: a\nconfig: b.yaml\nseeds: [1, 1]", "a list of different seeds, not [1, 1]"),
        ("name: a\nconfig: b.yaml\nseeds: [-1]", "grid.yaml:3: seeds:"),
        ("name: a\nconfig: b.yaml\nseeds: [true]", "grid.yaml:3: seeds:"),
        ("name: a\nconfig: b.yaml\nseeds: x", "grid.yaml:3: seeds:"),
        ("name: a\nconfig: b.yaml\ngrid: [1]", "grid.yaml:3: grid: should be a mapping of settings to lists"),
        ("name: a\nconfig: b.yaml\ngrid:\n  x.y: 3", "grid.x.y: should be a list of values, as in x.y: [1, 2], not 3"),
        ("name: a\nconfig: b.yaml\ngrid:\n  x.y: []", "grid.yaml:4: grid.x.y: should be a list of values"),
        ("name: a\nconfig: b.yaml\ngrid:\n  x: {y: [1, 2]}", "grid.yaml:4: grid.x: y is not a key of a setting"),
        ("name: a\nconfig: b.yaml\ngrid:\n  x: {values: [1], shorthand: a/b}", "shorthand should be letters"),
        ("name: a\nconfig: b.yaml\ngrid:\n  x: {values: [1, 2], in_name: false}", "always in the name"),
        ("name: a\nconfig: b.yaml\ngrid:\n  x: {values: [1], in_name: 3}", "in_name may be true"),
        ("name: a\nconfig: b.yaml\ngrid:\n  seed: [1, 2]", "grid.yaml:4: grid.seed: has its own key in a grid, `see"),
        ("name: a\nconfig: b.yaml\ngrid:\n  name: [b, c]", "grid.yaml:4: grid.name: has its own key in a grid, `nam"),
        (
            "name: a\nconfig: b.yaml\ngrid:\n  policy.epsilon_start: [1, 2]\n  policy.epsilon_end: [1, 2]",
            "grid.yaml:5: grid.policy.epsilon_end: is shortened to pol-eps, like policy.epsilon_start: give one a "
            "shorthand, as in policy.epsilon_end: {values: [...], shorthand: epsilon_end}",
        ),
        ("name: a\nconfig: b.yaml\ngrid:\n  x: [0.1, 0-1]", "are both called a_x0-1"),
        ("name: a\nconfig: b.yaml\ngrid:\n  x: [1, 1]", "are both called a_x1"),
        ("name: a\nconfig: b.yaml\nseeds: 10001", "makes 10001 runs; the most is 10000"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_where(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text)
    assert said in str(raised.value)


def test_all_problems_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, "name: 3\nseeds: x\ngrid:\n  a: 1\n  b: 2\n")
    assert len(raised.value.problems) == 5


def test_one_value_that_is_not_in_names_may_share_a_shorthand(tmp_path: Path) -> None:
    text = "name: a\nconfig: b.yaml\ngrid:\n  policy.epsilon_start: [1]\n  policy.epsilon_end: [0, 0.1]\n"
    assert [variant.name for variant in read(tmp_path, text).variants()] == ["a_pol-eps0", "a_pol-eps0-1"]


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
