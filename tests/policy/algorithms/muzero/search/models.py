"""Models for the search with exactly known numbers: tables, and functions of the path to a node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from remuda.policy.algorithms.muzero.search.rules import Actions, Floats, Nodes, SearchSettings
from remuda.policy.algorithms.muzero.search.search import COMPILED, new_tree
from remuda.policy.algorithms.muzero.search.tree import NumpyTree, Tree

Ints = npt.NDArray[np.int64]
NewTree = Callable[[int, int, SearchSettings], Tree]
TREES: list[NewTree] = [NumpyTree, *([new_tree] if COMPILED else [])]

both = pytest.mark.parametrize("new_tree", TREES, ids=["numpy", "compiled"][: len(TREES)])


def floats(*numbers: float) -> Floats:
    return np.array(numbers, np.float32)


class TableModel:
    """A finite deterministic world: next state and reward of each action, and prior and value of each state.

    An observation is the index of a state.
    """

    def __init__(self, leads_to: Ints, reward: Floats, *, prior: Floats | None = None, value: Floats | None = None):
        states, actions = leads_to.shape
        self.leads_to, self.reward = leads_to, reward
        self.prior = np.full((states, actions), 1 / actions, np.float32) if prior is None else prior
        self.value = np.zeros(states, np.float32) if value is None else value
        self._pool = np.empty((0, 0), np.int64)

    def begin(self, observations: Ints, simulations: int) -> tuple[Floats, Floats]:
        self._pool = np.full((simulations + 1, len(observations)), -1)
        self._pool[0] = observations
        return self.prior[observations], self.value[observations]

    def expand(self, parents: Nodes, actions: Actions, node: int) -> tuple[Floats, Floats, Floats]:
        states = self._pool[parents, np.arange(len(parents))]
        assert (states >= 0).all(), "a node that was not expanded yet"
        self._pool[node] = self.leads_to[states, actions]
        return self.reward[states, actions], self.prior[self._pool[node]], self.value[self._pool[node]]


class RandomModel:
    """Random numbers for each node; those of a root depend only on its observation (a seed).

    Some are equal, so that scores tie.
    """

    def __init__(self, actions: int, *, scale: float = 1.0, coarse: bool = False) -> None:
        self.actions, self.scale, self.coarse = actions, scale, coarse
        self._rngs: list[np.random.Generator] = []

    def begin(self, observations: Ints, simulations: int) -> tuple[Floats, Floats]:
        self._rngs = [np.random.default_rng(seed) for seed in observations]
        _, prior, value = self._drawn()
        return prior, value

    def expand(self, parents: Nodes, actions: Actions, node: int) -> tuple[Floats, Floats, Floats]:
        return self._drawn()

    def _drawn(self) -> tuple[Floats, Floats, Floats]:
        numbers = np.stack([rng.random(self.actions + 2) for rng in self._rngs])
        if self.coarse:
            numbers = np.round(2 * numbers) / 2
        weights = numbers[:, 2:] + 1e-3
        prior = weights / weights.sum(axis=1, keepdims=True)
        reward, value = (self.scale * (numbers[:, column] - 0.5) for column in range(2))
        return reward.astype(np.float32), prior.astype(np.float32), value.astype(np.float32)
