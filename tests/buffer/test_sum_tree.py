"""The sum tree agrees with sums and searches done the plain way, and the compiled one with numpy's, bit for bit."""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.buffer.sum_tree import COMPILED, NumpySumTree, SumTree, new_sum_tree

NewTree = Callable[[int], SumTree]
TREES: list[NewTree] = [NumpySumTree, *([new_sum_tree] if COMPILED else [])]
CAPACITIES = (1, 2, 3, 1000, 4096, 4097, 9000, 33_000)
VALUES = (0.0, 5e-324, 1e-300, 1e-6, 0.1, 1.0, 3.0, 1e6, 1e300)
"""From denormal to huge: the finest and coarsest values a priority can have."""

both = pytest.mark.parametrize("new_tree", TREES, ids=["numpy", "compiled"][: len(TREES)])


def test_the_tree_is_compiled_where_there_is_a_compiler() -> None:
    compiler = str(sysconfig.get_config_var("CC") or "cc").split()[0]
    if not COMPILED and shutil.which(compiler) is None:
        pytest.skip(f"no C compiler ({compiler}) here: Remuda runs on numpy's tree, and so do these tests")
    assert COMPILED, "run `make setup` again: the sum tree was not built"


@both
def test_hand_calculated_example(new_tree: NewTree) -> None:
    tree = new_tree(4)
    tree.set(np.array([0, 1, 3]), np.array([1.0, 2.0, 4.0]))
    assert tree.total == 7.0
    slots, values = tree.find(np.array([0.0, 0.999, 1.0, 2.999, 3.0, 6.999]))
    assert slots.tolist() == [0, 0, 1, 1, 3, 3]
    assert values.tolist() == [1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
    assert tree.get(np.array([[0, 1], [2, 3]])).tolist() == [[1.0, 2.0], [0.0, 4.0]]
    tree.set(np.array([0, 2]), 0.5)
    assert tree.get(np.arange(4)).tolist() == [0.5, 2.0, 0.5, 4.0]
    assert tree.find(np.array([[0.4, 0.6], [2.9, 3.1]]))[0].tolist() == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="at least one slot, not 0"):
        new_tree(0)


@both
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_find_agrees_with_a_search_in_the_cumulative_sums(new_tree: NewTree, capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    tree = new_tree(capacity)
    # Integers, so that sums are exact and the answer is one and only one.
    values = rng.integers(0, 4, capacity).astype(np.float64)
    values[0] = 1.0
    tree.set(np.arange(capacity), values)
    edges = values.cumsum()
    points = np.concatenate([rng.random(500) * values.sum(), edges[edges < values.sum()]])
    slots, found = tree.find(points)
    assert tree.total == values.sum()
    np.testing.assert_array_equal(slots, values.cumsum().searchsorted(points, side="right"))
    np.testing.assert_array_equal(found, values[slots])


@both
@settings(deadline=None)
@given(data=st.data(), capacity=st.sampled_from(CAPACITIES))
def test_any_sequence_of_changes_keeps_the_sums(new_tree: NewTree, data: st.DataObject, capacity: int) -> None:
    tree, naive = new_tree(capacity), np.zeros(capacity)
    slots = st.integers(0, capacity - 1)
    for changes in data.draw(st.lists(st.lists(st.tuples(slots, st.sampled_from(VALUES)), max_size=30), max_size=5)):
        tree.set(np.array([s for s, _ in changes], np.int64), np.array([v for _, v in changes]))
        for changed, new in changes:
            naive[changed] = new
    np.testing.assert_array_equal(tree.get(np.arange(capacity)), naive)
    np.testing.assert_allclose(tree.total, naive.sum(), rtol=1e-12)
    if naive.any():
        edges = np.array([0.0, 0.5, 1.0, 2.0, 1 - 1e-16]) * tree.total
        found, values = tree.find(np.concatenate([edges, naive.cumsum()]))
        assert (values > 0).all(), "a slot without a value was found"
        np.testing.assert_array_equal(values, naive[found])


@both
def test_a_draw_cuts_the_line_into_equal_parts(new_tree: NewTree) -> None:
    tree = new_tree(4)
    tree.set(np.arange(4), np.array([1.0, 0.0, 2.0, 5.0]))
    # Parts of 2: the points are 0, 3, 5.5 and 7.9; then 1, 2, 5.9 and 6.
    slots, shares = tree.draw(np.array([[0.0, 0.5, 0.75, 0.95], [0.5, 0.0, 0.95, 0.0]]))
    assert slots.tolist() == [[0, 3, 3, 3], [2, 2, 3, 3]]
    assert shares.tolist() == [[0.125, 0.625, 0.625, 0.625], [0.25, 0.25, 0.625, 0.625]]
    assert tree.draw(np.array([[0.1], [0.2]]))[0].tolist() == [[0], [2]], "each row is a whole line"


@pytest.mark.skipif(not COMPILED, reason="there is one tree only; the first test says whether that is right")
@settings(deadline=None)
@given(data=st.data(), capacity=st.sampled_from(CAPACITIES), seed=st.integers(0, 2**32))
def test_both_trees_are_one_and_the_same(data: st.DataObject, capacity: int, seed: int) -> None:
    trees, rng = [new_tree(capacity) for new_tree in TREES], np.random.default_rng(seed)
    first, count = st.integers(0, capacity - 1), st.integers(1, min(capacity, 700))
    for run in data.draw(st.lists(st.tuples(first, count, st.booleans()), max_size=6)):
        slots = (run[0] + np.arange(run[1])) % capacity if run[2] else rng.integers(0, capacity, run[1])
        values = rng.choice(VALUES[:-1], len(slots)) * rng.random(len(slots))
        for tree in trees:
            tree.set(slots, values)
        assert trees[0].total == trees[1].total
    if trees[0].total > 0:
        points = np.concatenate([rng.random(200), [0.0, 1.0, 2.0, np.nextafter(1.0, 0.0)]]) * trees[0].total
        points = np.concatenate([points, trees[0].get(np.arange(capacity)).cumsum()])
        for one, other in zip(trees[0].find(points), trees[1].find(points), strict=True):
            np.testing.assert_array_equal(one, other)
        shares = rng.random((3, 67))
        for one, other in zip(trees[0].draw(shares), trees[1].draw(shares), strict=True):
            np.testing.assert_array_equal(one, other)


@both
def test_a_carried_over_point_moves_back_to_the_last_slot_with_a_value(new_tree: NewTree) -> None:
    tree = new_tree(8192)
    values, end = np.array([0.01, 0.016]), np.nextafter(0.01 + 0.016, 0.0)
    assert end - 0.01 >= 0.016, "counted from the end of slot 0 on, the end of the line lies beyond slot 2"
    tree.set(np.array([0, 2]), values)
    slots, found = tree.find(np.array([[0.0, end], [1.0, np.inf]]))
    assert slots.tolist() == [[0, 2], [2, 2]]
    assert found.tolist() == [[0.01, 0.016], [0.016, 0.016]]


@both
def test_long_use_does_not_drift(new_tree: NewTree) -> None:
    rng = np.random.default_rng(0)
    tree, fresh = new_tree(20_000), new_tree(20_000)
    for _ in range(2000):
        tree.set(rng.integers(0, 20_000, 64), rng.random(64) * 10.0 ** rng.integers(-6, 6))
    exact = tree.get(np.arange(20_000))
    fresh.set(np.arange(20_000), exact)
    assert tree.total == fresh.total, "what the values were before left a trace"
    assert abs(tree.total - exact.sum()) <= 1e-12 * exact.sum()


@both
def test_a_tree_without_a_sum_refuses_to_search(new_tree: NewTree) -> None:
    with pytest.raises(ValueError, match="cannot be searched"):
        new_tree(10).find(np.array([0.0]))
    with pytest.raises(ValueError, match="cannot be searched"):
        new_tree(10).draw(np.array([0.0]))
    endless = new_tree(10)
    with np.errstate(over="ignore"):
        endless.set(np.arange(2), 1.7e308)
        with pytest.raises(ValueError, match="cannot be searched"):
            endless.find(np.array([0.0]))


@both
@pytest.mark.parametrize("slot", [-1, 5000, 8191, 8192, 2**40, -(2**63), 2**63 - 1])
def test_slots_that_are_not_there_are_refused_and_nothing_changes(new_tree: NewTree, slot: int) -> None:
    tree = new_tree(5000)
    tree.set(np.array([1, 4999]), 2.0)
    with pytest.raises(IndexError, match="sum tree of 5000"):
        tree.set(np.array([1, slot]), np.array([7.0, 7.0]))
    with pytest.raises(IndexError, match="sum tree of 5000"):
        tree.get(np.array([[slot]]))
    assert tree.total == 4.0
    assert tree.get(np.array([1])).tolist() == [2.0]


@both
@pytest.mark.parametrize("value", [np.nan, -1.0, -5e-324, np.inf, -np.inf])
def test_values_that_are_none_are_refused_and_nothing_changes(new_tree: NewTree, value: float) -> None:
    tree = new_tree(5000)
    tree.set(np.array([1, 2]), 2.0)
    for values in (np.array([7.0, value]), value):
        with pytest.raises(ValueError, match="finite and not negative"):
            tree.set(np.array([1, 2]), values)
    assert tree.total == 4.0
    assert tree.get(np.array([1, 2])).tolist() == [2.0, 2.0]


@both
@pytest.mark.parametrize("point", [np.nan, -1e-9, -np.inf])
def test_points_before_the_line_are_refused(new_tree: NewTree, point: float) -> None:
    tree = new_tree(5000)
    tree.set(np.array([1]), 2.0)
    with pytest.raises(ValueError, match="must not be negative"):
        tree.find(np.array([1.0, point]))
    with pytest.raises(ValueError, match="must not be negative"):
        tree.draw(np.array([point, 0.5]))


@pytest.mark.skipif(not COMPILED, reason="numpy converts such arrays itself")
def test_the_compiled_tree_takes_no_other_numbers() -> None:
    tree = new_sum_tree(10)
    with pytest.raises(TypeError, match="type 'i'"):
        tree.set(np.arange(3, dtype=np.int32), 1.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"type '>[lq]'"):
        tree.get(np.arange(3, dtype=">i8"))
    tree.set(np.arange(3), 1.0)
    for look in (tree.find, tree.draw):
        with pytest.raises(TypeError, match="type 'f'"):
            look(np.zeros(1, np.float32))  # pyright: ignore[reportArgumentType]
