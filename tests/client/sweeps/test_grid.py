"""Reading a grid: what it comes to, and every problem of a wrong one with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from remuda.client.sweeps.grid import Grid, read_grid, value_text
from remuda.client.sweeps.space import Distribution, Pruning
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("config: b.yaml", "grid.yaml: name: is required"),
        ("name: a/b\nconfig: b.yaml", "grid.yaml:1: name: should match ^[A-Za-z0-9][A-Za-z0-9._-]*$, not"),
        ("name: a\nconfig: b.yaml\nseed: 3", "grid.yaml:3: seed: no such setting; did you mean seeds?"),
        ("name: a\nconfig: b.yaml\nseeds: 0", "grid.yaml:3: seeds: should be a number of seeds"),
        ("name: a\nconfig: b.yaml\nseeds: [1, 1]", "a list of different seeds, not [1, 1]"),
        ("name: a\nconfig: b.yaml\ngrid: [1]", "grid.yaml:3: grid: should be a valid dictionary, not [1]"),
        ("name: a\nconfig: b.yaml\ngrid:\n  x.y: 3", "grid.x.y: should be a list of values, as in [1, 2]"),
        ("name: a\nconfig: b.yaml\ngrid:\n  x: {y: [1, 2]}", "grid.yaml:4: grid.x: should be a list of values"),
        ("name: a\nconfig: b.yaml\ngrid:\n  x: {values: [1, 2], in_name: false}", "always in the name"),
        ("name: a\nconfig: b.yaml\ngrid:\n  seed: [1, 2]", "grid.yaml:4: grid.seed: has its own key in a grid, `see"),
        (
            "name: a\nconfig: b.yaml\ngrid:\n  policy.epsilon_start: [1, 2]\n  policy.epsilon_end: [1, 2]",
            "grid.yaml:5: grid.policy.epsilon_end: is shortened to pol-eps, like policy.epsilon_start: give one a "
            "shorthand, as in policy.epsilon_end: {values: [...], shorthand: epsilon_end}",
        ),
        ("name: a\nconfig: b.yaml\ngrid:\n  x: [0.1, 0-1]", "are both called a_x0-1"),
        ("name: a\nconfig: b.yaml\nseeds: 5001\ngrid: {x: [1, 2]}", "makes 10002 runs; the most is 10000"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_where(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0-1"),
        (3e-4, "0-0003"),
        ([32, 32], "32-32"),
        ("ALE/Pong-v5", "ale-pong-v5"),
        (None, "none"),
        ({"id": "Pole", "x": [1, 2]}, "id-pole-x-1-2"),
    ],
)
def test_values(value: JsonValue, text: str) -> None:
    assert value_text(value) == text


@settings(deadline=None)
@given(st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_any_value_makes_a_file_name(value: JsonValue) -> None:
    assert re.fullmatch(r"[-_A-Za-z0-9]*", value_text(value))


HEAD = "name: hills\nconfig: tiny.yaml\nsearch:\n  trials: 3\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "search.yaml"
    path.write_text(text)
    return path


def test_a_whole_search(tmp_path: Path) -> None:
    grid = read_grid(
        written(
            tmp_path,
            HEAD + "  sampler: random\n  seed: 4\n  objective: last\n  at_once: 5\n"
            "  pruning: {percentile: 25, after_trials: 2, after_env_steps: 10, every_env_steps: 5}\n"
            "  space:\n"
            "    learner.learning_rate: {low: 1e-4, high: 1e-2, log: true}\n"
            "    policy.discount: {low: 0.9, high: 0.99, step: 0.01}\n"
            "    policy.n_step: {low: 1, high: 5}\n"
            "    policy.hidden: [[64], [32, 32]]\n"
            "    policy.double: [true, false]\n",
        )
    )
    search = grid.search
    assert search is not None
    assert (search.trials, search.sampler, search.seed, search.objective, search.at_once) == (3, "random", 4, "last", 5)
    pruning = {"percentile": 25, "after_trials": 2, "after_env_steps": 10, "every_env_steps": 5}
    assert search.pruning == Pruning.model_validate(pruning)
    assert search.space == {
        "learner.learning_rate": Distribution(low=1e-4, high=1e-2, log=True),
        "policy.discount": Distribution(low=0.9, high=0.99, step=0.01),
        "policy.n_step": Distribution(low=1, high=5),
        "policy.hidden": Distribution(values=([64], [32, 32])),
        "policy.double": Distribution(values=(True, False)),
    }
    whole = [key for key, one in search.space.items() if one.values is None and one.is_whole]
    assert whole == ["policy.n_step"]
    [override] = grid.trial(0, {"policy.n_step": 2}).overrides
    assert override.source.endswith("search.yaml:13")


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("  space: {}\n", "search.space: dictionary should have at least 1 item"),
        ("  space: {policy.n_step: [1, 1]}\n", "names a value twice"),
        ("  space: {policy.n_step: {low: 3, high: 3}}\n", r"low \(3\) should be less than high \(3\)"),
        ("  space: {policy.n_step: {low: 1, high: true}}\n", "high: should be a number"),
        ("  space: {policy.n_step: {low: 1, high: 3, step: 0}}\n", "a step should be above 0"),
        ("  space: {learner.learning_rate: {low: 0, high: 1, log: true}}\n", "with log needs a low above 0"),
        ("  space: {policy.n_step: 3}\n", "should be a list of two or more values, or a range"),
        (
            "  space: {policy.n_step: {low: 1, high: 3, stop: 1}}\n",
            r"stop: no such setting; did you mean search.*n_step.step\?",
        ),
        ("  space: {seed: [1, 2]}\n", "seed: cannot be searched"),
        ("  space: {policy.n_step: [1, 2]}\n  sampler: grid\n", "sampler: should be 'tpe' or 'random', not \"grid\""),
        ("  space: {policy.n_step: [1, 2]}\n  trails: 3\n", r"trails: no such setting; did you mean search.trials\?"),
        ("  space: {policy.n_step: [1, 2]}\n  pruning: {percentile: 0}\n", "percentile: should be greater than 0"),
        ("  space: {policy.n_step: [1, 2]}\ngrid: {policy.n_step: [3]}\n", "is in search.space, too"),
        ("  space: {policy.n_step: [1, 2]}\ngrid: {env.num_envs: [3, 4]}\n", "beside a search give it one"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, rest: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"search\.yaml:\d+: .*{said}"):
        read_grid(written(tmp_path, HEAD + rest))


def test_a_trial_has_the_grids_single_values_and_its_own(tmp_path: Path) -> None:
    grid = read_grid(written(tmp_path, HEAD + "  space: {policy.n_step: [1, 2]}\ngrid: {env.num_envs: [3]}\n"))
    variant = grid.trial(7, {"policy.n_step": 2})
    assert (variant.name, variant.settings) == ("hills_t007", {"env.num_envs": 3, "policy.n_step": 2})
    assert [(one.loc, one.value) for one in variant.overrides] == [(("env", "num_envs"), 3), (("policy", "n_step"), 2)]
