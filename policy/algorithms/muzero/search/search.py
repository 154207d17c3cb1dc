"""The search: simulations in the trees of all roots, with an evaluation of the network per simulation."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol, TypeVar

import numpy as np

from remuda.policy.algorithms.muzero.search.rules import Actions, Floats, Mask, Nodes, SearchSettings
from remuda.policy.algorithms.muzero.search.tree import CompiledTree, NumpyTree, Tree

COMPILED = find_spec("remuda.policy.algorithms.muzero.search._tree") is not None
"""True if MuZero searches at full speed here."""


def new_tree(roots: int, actions: int, settings: SearchSettings) -> Tree:
    """Make trees, compiled if possible."""
    return (CompiledTree if COMPILED else NumpyTree)(roots, actions, settings)


Observations = TypeVar("Observations", contravariant=True)


class Model(Protocol[Observations]):
    """Interface of a network for searches. The model keeps the hidden states, [simulations + 1, n, …]."""

    def begin(self, observations: Observations, simulations: int) -> tuple[Floats, Floats]:
        """Make room for `simulations` more nodes, and keep the hidden states of the roots as node 0.

        Returns the priors, float32 [n, actions] (probabilities), and the values, float32 [n].
        """
        ...

    def expand(self, parents: Nodes, actions: Actions, node: int) -> tuple[Floats, Floats, Floats]:
        """Step each tree's hidden state at `parents` int32 [n] by `actions` int64 [n], and store it as `node`.

        Returns the rewards of these steps, float32 [n], and priors and values as `begin` does.
        """
        ...


@dataclass(frozen=True)
class SearchResult:
    """Result of a search from n roots."""

    visits: Nodes
    """Number of simulations of each action, int32 [n, actions]; 0 for illegal actions."""
    policy: Floats
    """Target of the network's policy, float32 [n, actions]: the share of the visits, or with Gumbel MuZero the improved
    policy."""
    value: Floats
    """The mean value of the root, float32 [n]."""
    action: Actions
    """Best action, int64 [n]: the most visited, or with Gumbel MuZero the winner of sequential halving, which explores
    if noise was given."""


def search(
    model: Model[Observations],
    observations: Observations,
    settings: SearchSettings,
    *,
    tree: Tree,
    legal: Mask | None = None,
    noise: Floats | None = None,
    noise_fraction: float = 0.0,
) -> SearchResult:
    """Search from the roots of n `observations` in `tree`, which was made for n roots and the same settings.

    `legal`, `noise` and `noise_fraction` are those of Tree.reset. Raises the errors of tree and model.
    """
    prior, value = model.begin(observations, settings.simulations)
    tree.reset(prior, value, legal=legal, noise=noise, noise_fraction=noise_fraction)
    for node in range(1, settings.simulations + 1):
        parents, actions = tree.select()
        tree.expand(*model.expand(parents, actions, node))
    policy, best = tree.outcome()
    return SearchResult(tree.visits(), policy, tree.root_values(), best)


def choose(visits: Nodes, temperature: float, rng: np.random.Generator) -> Actions:
    """Choose an action of each root, int64 [n], with probabilities proportional to visits ** (1 / temperature).

    Temperature 0 takes the most visited action, the lowest index among equals, without random draws. Otherwise draws a
    number per root. Raises ValueError for a negative temperature and for a root without visits.
    """
    if not temperature >= 0:
        raise ValueError(f"temperature must not be negative, and is {temperature}")
    most = visits.max(axis=1, keepdims=True)
    if not (most > 0).all():
        raise ValueError("a root without visits has no action to choose")
    chosen: Actions
    if temperature == 0:
        chosen = visits.argmax(axis=1)
    else:
        ends = ((visits / most) ** (1 / temperature)).cumsum(axis=1)
        points = np.minimum(rng.random(len(visits)) * ends[:, -1], np.nextafter(ends[:, -1], 0.0))
        chosen = (ends <= points[:, None]).sum(axis=1)
    return chosen
