"""Which node a search expands next, and what it learns from that: the trees of all roots of a vector."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from remuda.policy.algorithms.muzero.search.numpy_tree import NumpyTree
from remuda.policy.algorithms.muzero.search.settings import Actions, Floats, Mask, Nodes, SearchSettings

__all__ = ["SearchSettings", "Tree", "new_tree"]


class Tree(Protocol):
    """The trees of n roots. Each has as many nodes as it was expanded times, and one more: node 0, the root.

    Memory is taken once, for all simulations; `reset` begins new trees in it. A node is chosen by the rule of MuZero
    (Schrittwieser et al. 2020, appendix B): the highest

        exploration(N) / (1 + n) · prior + normalized(reward + discount · value)

    of its actions, where N simulations went through the node and n took this action. Values are scaled by the lowest
    and the highest that the tree has seen. An action that was not tried counts as the mean of those that were (and
    below the root, of the mean that counted one level up). Of equal scores the highest prior wins, so that it decides
    where nothing was tried yet; of equal priors the lowest action.
    """

    def reset(
        self,
        prior: Floats,
        value: Floats,
        *,
        legal: Mask | None = None,
        noise: Floats | None = None,
        noise_fraction: float = 0.0,
    ) -> None:
        """Begin new trees: `prior` float32 [n, actions] (probabilities) and `value` float32 [n] of the roots.

        An action that is not `legal` (bool [n, actions]) is never taken at the root; below it nobody knows what is
        legal. `noise_fraction` of the root's priors comes from `noise` [n, actions] (a draw from a Dirichlet
        distribution per root). Raises ValueError for other shapes, numbers that are not finite, negative priors, and a
        root without a legal action.
        """
        ...

    def select(self) -> tuple[Nodes, Actions]:
        """Return the place of the next node of each tree: its parent, int32 [n], and the action there, int64 [n].

        Raises RuntimeError before `reset`, once all simulations are done, and for a second time without `expand`.
        """
        ...

    def expand(self, reward: Floats, prior: Floats, value: Floats) -> None:
        """Add a node to each tree where `select` said, its index one more than the last, and carry its value up.

        `reward` float32 [n] is that of the step to it, `prior` and `value` are as in `reset`. Raises RuntimeError
        without `select`, and ValueError as `reset` does; nothing has changed then.
        """
        ...

    def visits(self) -> Nodes:
        """Return how many simulations took each action of the roots, int32 [n, actions]."""
        ...

    def root_values(self) -> Floats:
        """Return the mean of the root's own value and of all that came up to it, float32 [n]."""
        ...

    def q_values(self) -> npt.NDArray[np.float64]:
        """Return the reward and discounted mean value of each action of the roots, float64 [n, actions].

        0 where no simulation took the action.
        """
        ...


def new_tree(roots: int, actions: int, settings: SearchSettings) -> Tree:
    """Return trees to be searched once they are reset. Raises ValueError without a root or an action."""
    return NumpyTree(roots, actions, settings)
