"""Trees agree with a hand calculation and with the rule written the plain way, in numpy and compiled, bit for bit."""

from __future__ import annotations

import shutil
import sysconfig

import numpy as np
import pytest

from remuda.policy.algorithms.muzero.search.rules import SearchSettings
from remuda.policy.algorithms.muzero.search.search import COMPILED, search
from remuda.policy.algorithms.muzero.search.tree import Tree
from remuda.tests.policy.algorithms.muzero.search.models import NewTree, RandomModel, both, floats


def test_the_trees_are_compiled_where_there_is_a_compiler() -> None:
    compiler = str(sysconfig.get_config_var("CC") or "cc").split()[0]
    if not COMPILED and shutil.which(compiler) is None:
        pytest.skip(f"no C compiler ({compiler}) here: Remuda runs on numpy's trees, and so do these tests")
    assert COMPILED, "run `make setup` again: the search tree was not built"


def counted(new_tree: NewTree, players: int) -> Tree:
    """Three simulations from one root, with choices calculated by hand."""
    tree = new_tree(1, 2, SearchSettings(simulations=3, discount=0.5, players=2 if players == 2 else 1))
    tree.reset(floats(0.6, 0.4)[None], floats(1))

    # Nothing tried: the prior decides.
    assert [place.tolist() for place in tree.select()] == [[0], [0]]
    tree.expand(floats(1), floats(0.5, 0.5)[None], floats(2))

    # One value seen, so all are normalized to 0: 1.2501 / 2 · 0.6 = 0.375 against 1.2501 · 0.4 = 0.500.
    assert [place.tolist() for place in tree.select()] == [[0], [1]]
    tree.expand(floats(0), floats(0.5, 0.5)[None], floats(1))

    # 1.768 / 2 · 0.6 + 1 = 1.530 against 1.768 / 2 · 0.4 + 0 = 0.354; below, equal scores and priors: the lowest.
    assert [place.tolist() for place in tree.select()] == [[1], [0]]
    tree.expand(floats(3), floats(0.5, 0.5)[None], floats(0))
    return tree


@both
def test_a_tree_counted_by_hand(new_tree: NewTree) -> None:
    tree = counted(new_tree, players=1)
    assert tree.visits().tolist() == [[2, 1]]
    # Action 0: 1 + 0.5 · (2 + 3) / 2; action 1: 0 + 0.5 · 1.
    assert tree.q_values().tolist() == [[2.25, 0.5]]
    # The root's own 1, then 1 + 0.5 · 2, then 0 + 0.5 · 1, then 1 + 0.5 · (3 + 0.5 · 0).
    assert tree.root_values().tolist() == [(1 + 2 + 0.5 + 2.5) / 4]


@both
def test_with_two_players_what_is_good_for_one_is_bad_for_the_other(new_tree: NewTree) -> None:
    tree = counted(new_tree, players=2)
    assert tree.visits().tolist() == [[2, 1]]
    # Action 0: 1 - 0.5 · (2 + 3) / 2; action 1: 0 - 0.5 · 1.
    assert tree.q_values().tolist() == [[-0.25, -0.5]]
    # The root's own 1, then 1 - 0.5 · 2, then 0 - 0.5 · 1, then 1 - 0.5 · (3 - 0.5 · 0).
    assert tree.root_values().tolist() == [(1 + 0 - 0.5 - 0.5) / 4]


@both
def test_small_differences_are_not_stretched(new_tree: NewTree) -> None:
    """Of two actions with values 0.002 apart, the floor of 0.01 leaves 0.2 and not 1."""
    for floor, expected in ((0.01, 1), (1e-6, 0)):
        tree = new_tree(1, 2, SearchSettings(simulations=4, discount=1.0, pb_c_init=1.0, value_delta_min=floor))
        tree.reset(floats(0.4, 0.6)[None], floats(0))
        for value in (0.0, 0.002):  # action 1 is tried first, then action 0, which is better by 0.002
            tree.select()
            tree.expand(floats(0), floats(0.5, 0.5)[None], floats(value))
        assert tree.visits().tolist() == [[1, 1]]
        # 1.414 / 2 · (0.6 - 0.4) = 0.141 for action 1 against 0.2 or 1 for action 0: both choose action 0. Then
        # 1.732 · (0.6 / 2 - 0.4 / 3) = 0.289 against 0.2 or 1.
        tree.select()
        tree.expand(floats(0), floats(0.5, 0.5)[None], floats(0.002))
        assert tree.visits().tolist() == [[2, 1]]
        tree.select()
        tree.expand(floats(0), floats(0.5, 0.5)[None], floats(0.002))
        assert tree.visits()[0, 1] == 1 + expected


@both
def test_of_equal_scores_the_highest_prior_wins_and_of_equal_priors_the_lowest_action(new_tree: NewTree) -> None:
    tree = new_tree(3, 4, SearchSettings(simulations=1))
    prior = np.array([[0.25, 0.25, 0.25, 0.25], [0.1, 0.3, 0.3, 0.3], [0.1, 0.2, 0.3, 0.4]], np.float32)
    tree.reset(prior, floats(1, 2, 3))
    assert tree.select()[1].tolist() == [0, 1, 3]


@both
def test_illegal_actions_are_never_taken_at_the_root(new_tree: NewTree) -> None:
    legal = np.array([[True, False, True], [False, False, True]])
    tree = new_tree(2, 3, SearchSettings(simulations=30))
    # All of the prior lies on an action that is not legal: the legal ones share it.
    tree.reset(np.array([[0, 1, 0], [0.1, 0.8, 0.1]], np.float32), floats(0, 0), legal=legal)
    for _ in range(30):
        tree.select()
        tree.expand(floats(-1, -1), np.full((2, 3), 1 / 3, np.float32), floats(-5, 5))
    assert (tree.visits()[~legal] == 0).all()
    assert (tree.visits()[legal] > 0).all()
    assert tree.visits().sum(axis=1).tolist() == [30, 30]


@both
def test_calls_come_in_their_order(new_tree: NewTree) -> None:
    tree = new_tree(1, 2, SearchSettings(simulations=1))
    node = (floats(0), floats(0.5, 0.5)[None], floats(0))
    with pytest.raises(RuntimeError, match="select comes after reset"):
        tree.select()
    with pytest.raises(RuntimeError, match="expand comes after select"):
        tree.expand(*node)
    tree.reset(*node[1:])
    with pytest.raises(RuntimeError, match="expand comes after select"):
        tree.expand(*node)
    tree.select()
    with pytest.raises(RuntimeError, match="once for each simulation"):
        tree.select()
    tree.expand(*node)
    with pytest.raises(RuntimeError, match="once for each simulation"):
        tree.select()
    assert tree.visits().tolist() == [[1, 0]]


@both
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused_and_nothing_changes(new_tree: NewTree, wrong: float) -> None:
    tree = new_tree(2, 2, SearchSettings(simulations=2))
    reward, prior, value = floats(0, 0), np.full((2, 2), 0.5, np.float32), floats(0, 0)
    bad_value, bad_prior = floats(0, wrong), np.array([[0.5, 0.5], [0.5, wrong]], np.float32)
    for roots in ((bad_prior, value), (prior, bad_value), (-prior, value)):
        with pytest.raises(ValueError, match="must be finite"):
            tree.reset(*roots)
    tree.reset(prior, value)
    tree.select()
    for node in ((bad_value, prior, value), (reward, bad_prior, value), (reward, prior, bad_value)):
        with pytest.raises(ValueError, match="must be finite"):
            tree.expand(*node)
    assert tree.visits().tolist() == [[0, 0], [0, 0]]
    tree.expand(reward, prior, value)
    assert tree.visits().tolist() == [[1, 0], [1, 0]]


@both
def test_arrays_of_other_shapes_are_refused(new_tree: NewTree) -> None:
    tree = new_tree(2, 3, SearchSettings(simulations=2))
    prior = np.full((2, 3), 1 / 3, np.float32)
    for roots in (
        (prior[:1], floats(0, 0)),
        (prior.reshape(3, 2), floats(0, 0)),
        (prior, floats(0)),
        (prior, floats(0, 0)[:, None]),
    ):
        with pytest.raises(ValueError, match="shape"):
            tree.reset(*roots)
    with pytest.raises(ValueError, match="legal of shape"):
        tree.reset(prior, floats(0, 0), legal=np.ones((2, 2), np.bool_))
    with pytest.raises(ValueError, match="without a legal action"):
        tree.reset(prior, floats(0, 0), legal=np.zeros((2, 3), np.bool_))
    tree.reset(prior, floats(0, 0))
    tree.select()
    with pytest.raises(ValueError, match="shape"):
        tree.expand(floats(0), prior, floats(0, 0))


@both
def test_arrays_that_are_not_float32_or_not_contiguous_are_refused(new_tree: NewTree) -> None:
    tree = new_tree(4, 3, SearchSettings(simulations=2))
    prior, value = np.full((4, 3), 1 / 3, np.float32), np.zeros(4, np.float32)
    scattered = np.zeros(8, np.float32)[::2]
    for wrong in ((np.asfortranarray(prior), value), (prior, scattered)):
        with pytest.raises(ValueError, match="contiguous"):
            tree.reset(*wrong)
    with pytest.raises(TypeError, match="instead of"):
        tree.reset(prior.astype(np.float64), value)
    tree.reset(prior, value)
    tree.select()
    for reward, priors, values in ((scattered, prior, value), (value, np.asfortranarray(prior), value)):
        with pytest.raises(ValueError, match="contiguous"):
            tree.expand(reward, priors, values)
    with pytest.raises(TypeError, match="instead of"):
        tree.expand(value, prior, value.astype(np.float64))
    tree.expand(value, prior, value)


@both
def test_trees_begin_afresh_in_the_same_memory(new_tree: NewTree) -> None:
    used, fresh = (new_tree(3, 4, SearchSettings(simulations=12)) for _ in range(2))
    model = RandomModel(4)
    search(model, np.array([4, 5, 6]), SearchSettings(simulations=12), tree=used)
    ours, theirs = (search(model, np.arange(3), SearchSettings(simulations=12), tree=tree) for tree in (used, fresh))
    np.testing.assert_array_equal(ours.visits, theirs.visits)
    np.testing.assert_array_equal(ours.value, theirs.value)
    np.testing.assert_array_equal(used.q_values(), fresh.q_values())
