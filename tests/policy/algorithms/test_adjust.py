"""After a setting changes during a run, the algorithm learns like one made with the new value and the same state."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import Adam

from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.current import Number, changeable, values_at, with_values
from remuda.config.schema import ExperimentConfig
from remuda.tests.policy.algorithms.every import CASES, learned

UPDATES = 4
SETTINGS = [
    (name, setting)
    for name, case in CASES.items()
    if "," not in name or name.startswith("sac")
    for setting in changeable(case.config)
    if setting not in case.without_effect
]


def other(config: ExperimentConfig, setting: str) -> Number:
    """Another valid value of the setting."""
    if setting == "policy.target_kl":
        return 1e-9
    value = values_at(config, 0, {setting: ()}).get(setting)
    return 0.003 if value is None else value + 1 if isinstance(value, int) else value / 4


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_an_adjusted_algorithm_is_one_that_was_made_so(name: str, setting: str) -> None:
    case, rng = CASES[name], np.random.default_rng(5)
    config = with_values(case.config, {setting: other(case.config, setting)})
    adjusted, unchanged, made = case.made(case.config), case.made(case.config), case.made(config)
    first, *later = [case.draw(rng) for _ in range(1 + UPDATES)]
    adjusted.learn(first)
    state = copy.deepcopy(adjusted.state())
    for one in (unchanged, made):
        one.load_state(state)
    adjusted.adjust(config)
    found, expected, former = (learned(one, later) for one in (adjusted, made, unchanged))
    for key, values in expected.items():
        np.testing.assert_array_equal(found[key], values, err_msg=key)
    assert any(not np.array_equal(values, former[key]) for key, values in expected.items()), "the setting matters"


@pytest.mark.parametrize("name", CASES)
def test_the_rate_that_is_told_is_the_one_in_force(name: str) -> None:
    case = CASES[name]
    algorithm = case.made(case.config)
    algorithm.adjust(with_values(case.config, {"learner.learning_rate": 0.004}))
    assert algorithm.learn(case.draw(np.random.default_rng(5))).metrics["cur_lr"] == 0.004


def test_there_is_a_case_of_each_algorithm() -> None:
    assert {case.config.policy.type for case in CASES.values()} == {*BUILT_IN}


def test_a_changed_rate_reaches_an_optimizer_of_torch() -> None:
    """For a custom class without its own `adjust`."""
    case = CASES["dqn"]
    algorithm = case.made(case.config)
    own = Adam([nn.Parameter(torch.zeros(1))], lr=0.5)
    vars(algorithm)["own"] = own
    algorithm.adjust(with_values(case.config, {"policy.target_update_iters": 3}))
    assert own.param_groups[0]["lr"] == 0.5, "the rate that did not change is left alone"
    algorithm.adjust(with_values(case.config, {"learner.learning_rate": 0.004}))
    assert own.param_groups[0]["lr"] == 0.004
