"""The sum tree agrees with sums and searches done the plain way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.buffer.sum_tree import SumTree

CAPACITIES = (1, 2, 3, 1000, 1024, 1025, 5000)


def test_hand_calculated_example() -> None:
    tree = SumTree(4)
    tree.set(np.array([0, 1, 3]), np.array([1.0, 2.0, 4.0]))
    assert tree.total == 7.0
    points = np.array([0.0, 0.999, 1.0, 2.999, 3.0, 6.999])
    assert tree.find(points).tolist() == [0, 0, 1, 1, 3, 3]
    assert tree.get(np.array([[0, 1], [2, 3]])).tolist() == [[1.0, 2.0], [0.0, 4.0]]


def test_of_a_slot_set_twice_the_last_value_stays() -> None:
    tree = SumTree(3000)
    tree.set(np.array([7, 2999, 7, 7]), np.array([1.0, 2.0, 3.0, 5.0]))
    assert tree.get(np.array([7, 2999])).tolist() == [5.0, 2.0]
    assert tree.total == 7.0


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_find_agrees_with_a_search_in_the_cumulative_sums(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    tree = SumTree(capacity)
    # Integers, so that sums are exact and the answer is one and only one.
    values = rng.integers(0, 4, capacity).astype(np.float64)
    values[0] = 1.0
    tree.set(np.arange(capacity), values)
    points = rng.random(500) * values.sum()
    expected = (values.cumsum() <= points[:, None]).sum(axis=1)
    assert tree.total == values.sum()
    np.testing.assert_array_equal(tree.find(points), expected)


@settings(deadline=None, max_examples=150)
@given(data=st.data(), capacity=st.sampled_from(CAPACITIES))
def test_any_sequence_of_changes_keeps_the_sums(data: st.DataObject, capacity: int) -> None:
    tree, naive = SumTree(capacity), np.zeros(capacity)
    slots = st.integers(0, capacity - 1)
    # From denormal to huge: the finest and coarsest values a priority can have.
    value = st.sampled_from([0.0, 5e-324, 1e-300, 1e-6, 0.1, 1.0, 3.0, 1e6, 1e300])
    for changes in data.draw(st.lists(st.lists(st.tuples(slots, value), max_size=30), max_size=5)):
        tree.set(np.array([s for s, _ in changes], np.int64), np.array([v for _, v in changes]))
        for changed, new in changes:
            naive[changed] = new
    np.testing.assert_array_equal(tree.get(np.arange(capacity)), naive)
    np.testing.assert_allclose(tree.total, naive.sum(), rtol=1e-12)
    if naive.any():
        edges = np.array([0.0, 0.5, 1.0, 2.0, 1 - 1e-16]) * tree.total
        found = tree.find(np.concatenate([edges, naive.cumsum()]))
        assert (naive[found] > 0).all(), "a slot without a value was found"


def test_rounding_never_leads_to_an_empty_slot() -> None:
    rng = np.random.default_rng(5)
    tree = SumTree(4096)
    live = rng.choice(4096, 300, replace=False)
    for _ in range(20):
        tree.set(live, rng.random(300) ** 12)
        found = tree.find(rng.random(20_000) * tree.total)
        assert np.isin(found, live).all()


def test_a_carried_over_point_moves_back_to_the_last_slot_with_a_value() -> None:
    tree = SumTree(8)
    # 0.1 + 0.2 rounds up and 0.3 - 0.1 rounds down, so the very end of the line lies beyond slot 1 by rounding.
    tree.set(np.array([0, 1, 4]), np.array([0.1, 0.2, 1e17]))
    assert set(tree.find(np.linspace(0, 1e17, 1001, endpoint=False)).tolist()) <= {0, 1, 4}
    assert tree._off_empty_leaves(np.array([3, 2, 7, 4])).tolist() == [1, 1, 4, 4]  # pyright: ignore[reportPrivateUsage]


def test_long_use_does_not_drift() -> None:
    rng = np.random.default_rng(0)
    tree = SumTree(2000)
    for _ in range(2000):
        tree.set(rng.integers(0, 2000, 64), rng.random(64) * 10.0 ** rng.integers(-6, 6))
    exact = tree.get(np.arange(2000)).sum()
    assert abs(tree.total - exact) <= 1e-12 * exact


def test_an_empty_tree_refuses_to_search() -> None:
    with pytest.raises(ValueError, match="all zero"):
        SumTree(10).find(np.array([0.0]))
    with pytest.raises(ValueError, match="at least one slot"):
        SumTree(0)


def test_empty_batches_change_nothing() -> None:
    tree = SumTree(5000)
    tree.set(np.array([1]), 2.0)
    tree.set(np.empty(0, np.int64), np.empty(0))
    assert tree.total == 2.0
    assert tree.find(np.empty(0)).tolist() == []
