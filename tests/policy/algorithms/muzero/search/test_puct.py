"""The rule of MuZero, one node at a time, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from remuda.policy.algorithms.muzero.search.rules import ILLEGAL, Doubles, Floats, Nodes, highest, mean_q, puct_choice


def made(*numbers: int) -> Nodes:
    return np.array([numbers], np.int32)


def doubles(*numbers: float) -> Doubles:
    return np.array([numbers])


def priors(*numbers: float) -> Floats:
    return np.array([numbers], np.float32)


def test_an_action_that_was_not_tried_counts_as_the_mean_of_those_that_were() -> None:
    assert mean_q(made(3, 0, 1), doubles(2.0, 0.0, 5.0), None).tolist() == [3.5]
    assert mean_q(made(0, 0, 0), doubles(0.0, 0.0, 0.0), None).tolist() == [0.0]


def test_below_the_root_the_mean_of_the_level_above_counts_as_one_more() -> None:
    assert mean_q(made(3, 0, 1), doubles(2.0, 0.0, 5.0), np.array([-1.0])).tolist() == [2.0]
    assert mean_q(made(0, 0, 0), doubles(0.0, 0.0, 0.0), np.array([-1.0])).tolist() == [-1.0]


def chosen(prior: Floats, tried: Nodes, q: Doubles, *, explore: float, low: float = 0.0, high: float = 1.0) -> int:
    scale = np.array([1 / (high - low)])
    mean = mean_q(tried, q, None)
    return int(puct_choice(prior, tried, q, mean, np.array([explore]), np.array([low]), scale)[0])


def test_values_decide_without_exploration_and_priors_with_it() -> None:
    prior, tried, q = priors(0.7, 0.2, 0.1), made(2, 2, 2), doubles(0.1, 0.2, 0.9)
    assert chosen(prior, tried, q, explore=0.0) == 2
    assert chosen(prior, tried, q, explore=100.0) == 0
    # 0.1 + x · 0.7 / 3 against 0.9 + x · 0.1 / 3: equal at x = 4.
    assert chosen(prior, tried, q, explore=3.99) == 2
    assert chosen(prior, tried, q, explore=4.01) == 0


def test_what_was_tried_often_counts_less() -> None:
    assert chosen(priors(0.6, 0.4), made(9, 0), doubles(0.5, 0.0), explore=1.0) == 1


def test_values_are_scaled_by_what_the_tree_has_seen() -> None:
    prior, tried, q = priors(0.5, 0.3), made(1, 1), doubles(110.0, 111.0)
    # 1 of a range of 100 does not make up for priors, 1 of a range of 4 does.
    assert chosen(prior, tried, q, explore=1.0, low=50.0, high=150.0) == 0
    assert chosen(prior, tried, q, explore=1.0, low=108.0, high=112.0) == 1


def test_illegal_actions_are_not_chosen() -> None:
    assert chosen(priors(ILLEGAL, 0.0, ILLEGAL), made(0, 5, 0), doubles(0.0, 0.0, 0.0), explore=1.0) == 1


@pytest.mark.parametrize(
    ("scores", "prior", "best"),
    [
        ((1.0, 2.0, 2.0), (0.9, 0.1, 0.2), 2),
        ((2.0, 2.0, 2.0), (0.3, 0.4, 0.4), 1),
        ((2.0, -np.inf, 2.0), (0.0, 1.0, 0.0), 0),
    ],
)
def test_ties(scores: tuple[float, ...], prior: tuple[float, ...], best: int) -> None:
    assert highest(doubles(*scores), priors(*prior)).tolist() == [best]
