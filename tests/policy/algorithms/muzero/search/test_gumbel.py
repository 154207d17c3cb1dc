"""Gumbel MuZero: the paper's formulas by hand, visits of each action, and the improvement of the policy."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.policy.algorithms.muzero.search.rules import (
    Doubles,
    GumbelSettings,
    SearchSettings,
    completed_q,
    exponential,
    visits_wanted,
)
from remuda.policy.algorithms.muzero.search.search import COMPILED, new_tree, search
from remuda.tests.policy.algorithms.muzero.search.models import TREES, NewTree, RandomModel, TableModel, both, floats


def doubles(*numbers: float) -> Doubles:
    return np.array([numbers])


@pytest.mark.parametrize(
    ("considered", "simulations", "wanted"),
    [
        (1, 4, [0, 1, 2, 3]),
        (2, 2, [0, 0]),
        (2, 5, [0, 0, 1, 1, 2]),
        (3, 6, [0, 0, 0, 1, 1, 2]),
        (4, 8, [0, 0, 0, 0, 1, 1, 2, 2]),
        (4, 16, [0] * 4 + [1] * 4 + [2, 2, 3, 3, 4, 4, 5, 5]),
        (16, 16, [0] * 16),
    ],
)
def test_half_of_the_actions_drop_out_each_round(considered: int, simulations: int, wanted: list[int]) -> None:
    assert visits_wanted(considered, simulations).tolist() == wanted


def test_values_of_actions_that_were_not_tried_are_filled_in() -> None:
    made, prior = np.array([[2, 0, 1]], np.int32), floats(0.5, 0.3, 0.2)[None]
    completed = completed_q(made, doubles(1.0, 0.0, 3.0), prior, np.array([0.5]))
    mixed = (0.5 + 3 * (0.5 * 1 + 0.2 * 3) / 0.7) / 4
    np.testing.assert_allclose(completed, [[1.0, mixed, 3.0]], rtol=1e-7)
    none = completed_q(np.zeros((1, 3), np.int32), doubles(0, 0, 0), prior, np.array([0.5]))
    assert none.tolist() == [[0.5, 0.5, 0.5]]


@given(st.lists(st.floats(-800, 0), min_size=1, max_size=50))
def test_the_exponential_is_right_to_the_last_digits(powers: list[float]) -> None:
    found, expected = exponential(np.array(powers)), np.exp(powers)
    expected[np.array(powers) < -700] = 0
    np.testing.assert_allclose(found, expected, rtol=4e-16, atol=0)


@both
def test_a_tree_counted_by_hand(new_tree: NewTree) -> None:
    """Two of three actions are considered: after one simulation each, the better one gets the third."""
    told = SearchSettings(3, discount=0.5, gumbel=GumbelSettings(considered_actions=2, c_visit=3, c_scale=0.5))
    tree = new_tree(1, 3, told)
    tree.reset(floats(0.5, 0.3, 0.2)[None], floats(0))
    # Nothing tried, sigma is 0 for all: log 0.5 is the highest.
    assert [place.tolist() for place in tree.select()] == [[0], [0]]
    tree.expand(floats(0), floats(0.2, 0.5, 0.3)[None], floats(0))
    # Of those that were not tried, log 0.3 is the highest.
    assert [place.tolist() for place in tree.select()] == [[0], [1]]
    tree.expand(floats(1), floats(0.2, 0.5, 0.3)[None], floats(2))
    # q is 0 and 1 + 0.5 · 2; the lowest value of the tree is 0, the highest 2. log 0.5 + 0 against log 0.3 +
    # (3 + 1) · 0.5 · 1. In the node below nothing was tried: its prior decides.
    assert [place.tolist() for place in tree.select()] == [[2], [1]]
    tree.expand(floats(0), floats(0.2, 0.5, 0.3)[None], floats(-2))
    assert tree.visits().tolist() == [[1, 2, 0]]
    assert tree.q_values().tolist() == [[0.0, 1 + 0.5 * (2 - 1) / 2, 0.0]]
    assert tree.root_values().tolist() == [(0 + 0 + 2 + 0.5) / 4]
    # Values of the tree are now -2 … 2, and the third action counts as (0 + 3 · (0.3 · 1.25) / 0.8) / 4.
    filled_in = 3 * 0.3 * 1.25 / 0.8 / 4
    sigma = (3 + 2) * 0.5 * (np.array([0, 1.25, filled_in]) + 2) / 4
    weights = np.array([0.5, 0.3, 0.2]) * np.exp(sigma)
    policy, best = tree.outcome()
    np.testing.assert_allclose(policy, [weights / weights.sum()], rtol=1e-6)
    assert best.tolist() == [1]


@both
def test_below_the_root_visits_follow_the_improved_policy(new_tree: NewTree) -> None:
    """With equal values that is the prior: each action has exactly its share of 199 visits."""
    told = SearchSettings(200, discount=1.0, gumbel=GumbelSettings(considered_actions=1))
    tree, prior = new_tree(1, 3, told), floats(0.6, 0.3, 0.1)[None]
    tree.reset(prior, floats(0))
    below: list[int] = [-1, -1]  # of each node, which action of node 1 led there
    for _ in range(200):
        parents, actions = tree.select()
        if parents[0] > 0:
            below.append(int(actions[0]) if parents[0] == 1 else below[parents[0]])
        tree.expand(floats(0), prior, floats(0))
    assert tree.visits().tolist() == [[200, 0, 0]]
    np.testing.assert_allclose(np.bincount(below[2:]), 199 * prior[0], atol=1)


@pytest.mark.skipif(not COMPILED, reason="there is one tree only")
@settings(deadline=None)
@given(
    roots=st.integers(1, 5),
    actions=st.sampled_from([1, 2, 7, 18, 100]),
    simulations=st.integers(1, 60),
    coarse=st.booleans(),
    scale=st.sampled_from([1e-3, 1.0, 300.0]),
    rule=st.sampled_from([None, GumbelSettings(), GumbelSettings(3, c_scale=0.02)]),
    players=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**32),
)
def test_both_trees_are_one_and_the_same(
    roots: int,
    actions: int,
    simulations: int,
    coarse: bool,
    scale: float,
    rule: GumbelSettings | None,
    players: Literal[1, 2],
    seed: int,
) -> None:
    told, rng = SearchSettings(simulations, 0.9, players, gumbel=rule), np.random.default_rng(seed)
    legal = rng.random((roots, actions)) < 0.7
    legal[:, rng.integers(actions)] = True
    drawn = rng.gumbel(size=(roots, actions)) if rule else rng.dirichlet(np.full(actions, 0.3), roots)
    noise = drawn.astype(np.float32)
    states, model = rng.integers(0, 2**32, roots), RandomModel(actions, coarse=coarse, scale=scale)
    trees = [new_tree(roots, actions, told) for new_tree in TREES]
    one, other = (
        search(model, states, told, tree=tree, legal=legal, noise=noise, noise_fraction=0.25) for tree in trees
    )
    np.testing.assert_array_equal(one.visits, other.visits)
    np.testing.assert_array_equal(one.policy, other.policy)
    np.testing.assert_array_equal(one.value, other.value)
    np.testing.assert_array_equal(one.action, other.action)
    np.testing.assert_array_equal(trees[0].q_values(), trees[1].q_values())


@settings(deadline=None)
@given(
    roots=st.integers(1, 4),
    actions=st.integers(1, 20),
    simulations=st.integers(1, 50),
    considered=st.integers(1, 20),
    seed=st.integers(0, 2**32),
)
def test_sequential_halving_is_followed(roots: int, actions: int, simulations: int, considered: int, seed: int) -> None:
    told, rng = SearchSettings(simulations, gumbel=GumbelSettings(considered)), np.random.default_rng(seed)
    legal = rng.random((roots, actions)) < 0.6
    legal[:, 0] = True
    states = rng.integers(0, 2**32, roots)
    found = search(RandomModel(actions), states, told, tree=new_tree(roots, actions, told), legal=legal)
    for visits, mask in zip(found.visits, legal, strict=True):
        wanted = visits_wanted(min(considered, simulations, int(mask.sum())), simulations)
        for made in range(simulations):
            assert (visits > made).sum() == (wanted == made).sum()
        assert not visits[~mask].any()
    assert not found.policy[~legal].any()
    np.testing.assert_allclose(found.policy.sum(axis=1), 1, rtol=1e-5)
    assert (found.visits[np.arange(roots), found.action] == found.visits.max(axis=1)).all()


@settings(deadline=None)
@given(actions=st.integers(2, 16), c_scale=st.sampled_from([0.02, 0.1, 1.0]), seed=st.integers(0, 2**32))
def test_the_improved_policy_earns_more_than_the_network_s(actions: int, c_scale: float, seed: int) -> None:
    """For a bandit with all arms tried."""
    rng, roots = np.random.default_rng(seed), 8
    prior = rng.dirichlet(np.ones(actions), roots).astype(np.float32)
    reward = rng.random((roots, actions)).astype(np.float32)
    model = TableModel(np.tile(np.arange(roots)[:, None], actions), reward, prior=prior)
    told = SearchSettings(actions, discount=0.0, gumbel=GumbelSettings(16, c_scale=c_scale))
    found = search(model, np.arange(roots), told, tree=new_tree(roots, actions, told))
    assert (found.visits == 1).all()
    assert ((found.policy * reward).sum(axis=1) >= (prior * reward).sum(axis=1) - 1e-6).all()
