"""What is promised of the key `search` of a sweep's file: what it means, and what errors say."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.client.sweeps.grid import read_grid
from remuda.client.sweeps.space import Choices, FloatRange, IntRange, Pruning
from remuda.config.errors import ConfigError

HEAD = "name: hills\nconfig: tiny.yaml\nsearch:\n  trials: 3\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "search.yaml"
    path.write_text(text)
    return path


def test_a_whole_search(tmp_path: Path) -> None:
    search = read_grid(
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
    ).search
    assert search is not None
    assert (search.trials, search.sampler, search.seed, search.objective, search.at_once) == (3, "random", 4, "last", 5)
    assert search.pruning == Pruning(25.0, 2, 10, 5)
    assert [(one.key, one.distribution) for one in search.settings] == [
        ("learner.learning_rate", FloatRange(1e-4, 1e-2, log=True)),
        ("policy.discount", FloatRange(0.9, 0.99, step=0.01)),
        ("policy.n_step", IntRange(1, 5)),
        ("policy.hidden", Choices(([64], [32, 32]))),
        ("policy.double", Choices((True, False))),
    ]
    assert search.settings[2].source.endswith("search.yaml:13")


def test_what_may_be_left_out(tmp_path: Path) -> None:
    search = read_grid(written(tmp_path, HEAD + "  space: {policy.n_step: [1, 2]}\n  pruning: true\n")).search
    assert search is not None
    assert (search.sampler, search.seed, search.objective, search.at_once) == ("tpe", 0, "best", 2)
    assert search.pruning == Pruning(50.0, 5, 0, None)


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("  space: {}\n", "search.space: should be a mapping of settings"),
        ("  space: {policy.n_step: [1]}\n", "should be a list of two or more values, or a range"),
        ("  space: {policy.n_step: [1, 1]}\n", "names a value twice"),
        ("  space: {policy.n_step: {low: 1}}\n", "should be a list of two or more values, or a range"),
        ("  space: {policy.n_step: {low: 3, high: 3}}\n", r"low \(3\) should be less than high \(3\)"),
        ("  space: {policy.n_step: {low: 1, high: .inf}}\n", "should be numbers"),
        ("  space: {policy.n_step: {low: 1, high: true}}\n", "should be numbers"),
        ("  space: {policy.n_step: {low: 0, high: 3, log: true}}\n", "with log needs a low above 0"),
        ("  space: {policy.n_step: {low: 1, high: 3, log: 1}}\n", "log should be true or false"),
        ("  space: {policy.n_step: {low: 1, high: 3, step: 9}}\n", "a step should be above 0"),
        ("  space: {policy.n_step: {low: 1, high: 3, stop: 1}}\n", "stop is not a key of a range"),
        ("  space: {seed: [1, 2]}\n", "seed: cannot be searched"),
        ("  space: {policy.n_step: [1, 2]}\n  sampler: grid\n", "should be tpe or random, not 'grid'"),
        ("  space: {policy.n_step: [1, 2]}\n  at_once: 0\n", "should be an integer from 1 to 1000, not 0"),
        ("  space: {policy.n_step: [1, 2]}\n  trails: 3\n", "search.trails: unknown key"),
        ("  space: {policy.n_step: [1, 2]}\n  pruning: {percentile: 0}\n", "should be above 0 and below 100"),
        ("  space: {policy.n_step: [1, 2]}\n  pruning: 5\n", "should be true, or a mapping"),
        ("  space: {policy.n_step: [1, 2]}\ngrid: {policy.n_step: [3]}\n", "is in search.space, too"),
        ("  space: {policy.n_step: [1, 2]}\ngrid: {env.num_envs: [3, 4]}\n", "beside a search give it one"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, rest: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"search\.yaml:\d+: .*{said}"):
        read_grid(written(tmp_path, HEAD + rest))


def test_trials_are_required_and_a_search_is_a_mapping(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"search\.trials: is required"):
        read_grid(written(tmp_path, "name: hills\nconfig: tiny.yaml\nsearch: {space: {policy.n_step: [1, 2]}}\n"))
    with pytest.raises(ConfigError, match="search: should be a mapping"):
        read_grid(written(tmp_path, "name: hills\nconfig: tiny.yaml\nsearch: 5\n"))


def test_a_trial_has_the_grids_single_values_and_its_own(tmp_path: Path) -> None:
    grid = read_grid(written(tmp_path, HEAD + "  space: {policy.n_step: [1, 2]}\ngrid: {env.num_envs: [3]}\n"))
    variant = grid.trial(7, {"policy.n_step": 2})
    assert (variant.name, variant.settings) == ("hills_t007", {"env.num_envs": 3, "policy.n_step": 2})
    assert [(one.loc, one.value) for one in variant.overrides] == [(("env", "num_envs"), 3), (("policy", "n_step"), 2)]
