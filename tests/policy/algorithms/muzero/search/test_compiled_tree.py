"""Compiled trees refuse arguments that do not fit, and search in several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest

from remuda.policy.algorithms.muzero.search.rules import GumbelSettings, SearchSettings
from remuda.policy.algorithms.muzero.search.search import COMPILED, SearchResult, new_tree, search
from remuda.tests.policy.algorithms.muzero.search.models import RandomModel

if not COMPILED:
    pytest.skip("the trees are numpy's here; another test says whether that is right", allow_module_level=True)

from remuda.policy.algorithms.muzero.search._tree import Tree

NO_GUMBEL = (0, 0.0, 0.0, None)
PARENTS, ACTIONS = np.empty(2, np.int32), np.empty(2, np.int64)
PRIOR, VALUE, NO_SCORES = np.full((2, 3), 1 / 3, np.float32), np.zeros(2, np.float32), np.empty((2, 0))


def compiled(simulations: int = 4) -> Tree:
    return Tree(2, 3, simulations, 0.9, 1.0, 0.01, SearchSettings(simulations).exploration(), NO_GUMBEL)


def test_places_are_written_into_arrays_of_their_types_only() -> None:
    tree = compiled()
    tree.reset(PRIOR, VALUE, None, NO_SCORES, 0.0)
    with pytest.raises(TypeError, match="instead of"):
        tree.select(ACTIONS, ACTIONS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shape"):
        tree.select(PARENTS, np.empty(3, np.int64))
    fixed = np.empty(2, np.int32)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        tree.select(fixed, ACTIONS)
    tree.select(PARENTS, ACTIONS)
    assert PARENTS.tolist() == [0, 0]


def test_the_rule_of_gumbel_muzero_needs_logits_and_scores() -> None:
    schedule = np.zeros((3, 4), np.int32)
    tree = Tree(2, 3, 4, 0.9, 1.0, 0.01, SearchSettings(4).exploration(), (2, 50.0, 1.0, schedule))
    with pytest.raises(TypeError, match="bytes-like"):
        tree.reset(PRIOR, VALUE, None, np.zeros((2, 3)), 0.0)
    with pytest.raises(ValueError, match="shape"):
        tree.reset(PRIOR, VALUE, PRIOR, NO_SCORES, 0.0)
    tree.reset(PRIOR, VALUE, PRIOR, np.zeros((2, 3)), 0.0)
    tree.select(PARENTS, ACTIONS)
    with pytest.raises(TypeError, match="bytes-like"):
        tree.expand(VALUE, PRIOR, VALUE, None)


def test_tables_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="a table of"):
        Tree(2, 3, 4, 0.9, 1.0, 0.01, np.zeros(4), NO_GUMBEL)
    with pytest.raises(ValueError, match="a table of"):
        Tree(2, 3, 4, 0.9, 1.0, 0.01, np.zeros(5), (2, 50.0, 1.0, np.zeros((2, 4), np.int32)))


@pytest.mark.parametrize(
    ("roots", "actions", "simulations"),
    [(2**40, 2, 2), (2, 2**40, 2), (2, 2, 2**40), (2**21, 2**20, 2), (2**62, 2**62, 2**62)],
)
def test_more_than_any_memory_is_refused(roots: int, actions: int, simulations: int) -> None:
    with pytest.raises(MemoryError):
        Tree(roots, actions, simulations, 0.9, 1.0, 0.01, np.zeros(3), NO_GUMBEL)


@pytest.mark.parametrize("rule", [None, GumbelSettings()])
def test_threads_search_their_own_trees_side_by_side(rule: GumbelSettings | None) -> None:
    told = SearchSettings(20, gumbel=rule)

    def found(seed: int) -> SearchResult:
        return search(RandomModel(5), np.arange(seed, seed + 16), told, tree=new_tree(16, 5, told))

    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(found, range(12)))
    for seed, result in enumerate(together):
        alone = found(seed)
        np.testing.assert_array_equal(result.visits, alone.visits)
        np.testing.assert_array_equal(result.value, alone.value)
        np.testing.assert_array_equal(result.policy, alone.policy)


def test_a_tree_gives_its_memory_back() -> None:
    """Each tree takes 10 MB: forty that were not freed would show."""
    prior, value = np.full((10_000, 50), 0.02, np.float32), np.zeros(10_000, np.float32)
    before = psutil.Process().memory_info().rss
    for _ in range(40):
        tree = Tree(10_000, 50, 1, 0.9, 1.0, 0.01, SearchSettings(1).exploration(), NO_GUMBEL)
        tree.reset(prior, value, None, np.empty((10_000, 0)), 0.0)
    assert psutil.Process().memory_info().rss - before < 150e6
