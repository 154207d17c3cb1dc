"""A search with a perfect model finds the best action, independently of the other roots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.policy.algorithms.muzero.search.rules import Floats, GumbelSettings, Nodes, SearchSettings
from remuda.policy.algorithms.muzero.search.search import choose, new_tree, search
from remuda.tests.policy.algorithms.muzero.search.models import RandomModel, TableModel


@settings(deadline=None, max_examples=40)
@given(
    roots=st.integers(1, 6),
    actions=st.integers(1, 9),
    simulations=st.integers(1, 40),
    seed=st.integers(0, 2**32),
    mask=st.booleans(),
    noisy=st.booleans(),
)
def test_visits_add_up(roots: int, actions: int, simulations: int, seed: int, mask: bool, noisy: bool) -> None:
    rng, told = np.random.default_rng(seed), SearchSettings(simulations)
    legal = rng.random((roots, actions)) < 0.5
    legal[np.arange(roots), rng.integers(0, actions, roots)] = True
    noise = rng.dirichlet(np.full(actions, 0.3), roots).astype(np.float32)
    found = search(
        RandomModel(actions),
        rng.integers(0, 99, roots),
        told,
        tree=new_tree(roots, actions, told),
        legal=legal if mask else None,
        noise=noise if noisy else None,
        noise_fraction=0.25,
    )
    assert found.visits.sum(axis=1).tolist() == [simulations] * roots
    assert not (mask and found.visits[~legal].any())
    np.testing.assert_allclose(found.policy, found.visits / simulations, rtol=1e-6)
    arrays = (found.visits, found.policy, found.value, found.action)
    assert [str(array.dtype) for array in arrays] == ["int32", "float32", "float32", "int64"]
    np.testing.assert_array_equal(found.action, found.visits.argmax(axis=1))
    assert (np.abs(found.value) <= 0.5 + 0.5 / (1 - 0.997)).all()


@settings(deadline=None, max_examples=25)
@given(
    roots=st.integers(2, 7),
    actions=st.integers(1, 6),
    simulations=st.integers(1, 30),
    rule=st.sampled_from([None, GumbelSettings()]),
    seed=st.integers(0, 2**32),
)
def test_roots_are_separate(roots: int, actions: int, simulations: int, rule: GumbelSettings | None, seed: int) -> None:
    rng, told, model = (
        np.random.default_rng(seed),
        SearchSettings(simulations, gumbel=rule),
        RandomModel(actions, coarse=True),
    )
    states = rng.integers(0, 2**32, roots)
    legal = rng.random((roots, actions)) < 0.7
    legal[:, 0] = True
    noise = rng.dirichlet(np.full(actions, 0.3), roots).astype(np.float32)
    tree, alone = new_tree(roots, actions, told), new_tree(1, actions, told)
    together = search(model, states, told, tree=tree, legal=legal, noise=noise, noise_fraction=0.25)
    for i in range(roots):
        one = slice(i, i + 1)
        found = search(model, states[one], told, tree=alone, legal=legal[one], noise=noise[one], noise_fraction=0.25)
        np.testing.assert_array_equal(found.visits, together.visits[one])
        np.testing.assert_array_equal(found.value, together.value[one])
        np.testing.assert_array_equal(found.policy, together.policy[one])
        np.testing.assert_array_equal(found.action, together.action[one])


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32), actions=st.integers(2, 5))
def test_with_a_perfect_model_the_optimal_action_has_the_most_visits(seed: int, actions: int) -> None:
    rng, states, discount = np.random.default_rng(seed), 12, 0.5
    leads_to = rng.integers(0, states, (states, actions))
    reward = rng.random((states, actions)).astype(np.float32)
    q = np.zeros((states, actions))
    for _ in range(300):
        q = reward + discount * q.max(axis=1)[leads_to]
    told = SearchSettings(simulations=200, discount=discount)
    model = TableModel(leads_to, reward, value=q.max(axis=1).astype(np.float32))
    found = search(model, np.arange(states), told, tree=new_tree(states, actions, told))
    best, second = np.sort(q, axis=1)[:, -1], np.sort(q, axis=1)[:, -2]
    clear = best - second > 0.1 * np.ptp(q)
    assert (found.visits.argmax(axis=1) == q.argmax(axis=1))[clear].all()
    assert (found.value <= best + 1e-4).all(), "no mean is higher than the optimum"


NIM_STATES = 10
LOST = NIM_STATES
"""State after the end of a game, with value 0 for both sides."""


def nim() -> TableModel:
    """Two players take one or two of at most nine. The player who takes the last wins; taking more
    than is left loses."""
    leads_to = np.full((NIM_STATES + 1, 2), LOST)
    reward = np.zeros((NIM_STATES + 1, 2), np.float32)
    for left in range(1, NIM_STATES):
        for action, taken in enumerate((1, 2)):
            leads_to[left, action] = left - taken if taken < left else LOST
            reward[left, action] = 1.0 if taken == left else -1.0 if taken > left else 0.0
    return TableModel(leads_to, reward)


def test_two_players_play_nim_as_theory_says() -> None:
    """From a number that is no multiple of three, the winner leaves a multiple of three."""
    told = SearchSettings(simulations=600, discount=1.0, players=2)
    left = np.array([1, 2, 4, 5, 7, 8])
    found = search(nim(), left, told, tree=new_tree(len(left), 2, told))
    assert (found.visits.argmax(axis=1) + 1).tolist() == (left % 3).tolist()
    assert (found.value > 0).all()
    lost = search(nim(), np.array([3, 6]), told, tree=new_tree(2, 2, told))
    assert (lost.value < 0).all()


def visits(*rows: list[int]) -> Nodes:
    return np.array(rows, np.int32)


def shares(counts: Nodes, temperature: float) -> Floats:
    rng = np.random.default_rng(0)
    chosen = choose(np.repeat(counts, 20_000, axis=0), temperature, rng)
    return (np.bincount(chosen, minlength=counts.shape[1]) / 20_000).astype(np.float32)


def test_without_temperature_the_most_visits_decide_and_nothing_is_drawn() -> None:
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    chosen = choose(visits([1, 5, 3], [4, 4, 0], [0, 0, 9]), 0.0, rng)
    assert chosen.tolist() == [1, 0, 2]
    assert chosen.dtype == np.int64
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.25, 2.0])
def test_temperature_sharpens_or_flattens_the_shares(temperature: float) -> None:
    counts = visits([0, 2, 6, 12])
    weights = counts[0] ** (1 / temperature)
    np.testing.assert_allclose(shares(counts, temperature), weights / weights.sum(), atol=0.012)
