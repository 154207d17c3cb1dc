"""Which node a search expands next, and what it learns from that: the trees of all roots of a vector.

The trees are compiled. Where Remuda was installed without a C compiler, trees in numpy with the same numbers, bit for
bit, take their place; choosing and adding nodes then takes many times as long.
"""

from __future__ import annotations

from typing import Protocol

from remuda.policy.algorithms.muzero.search.numpy_tree import NumpyTree
from remuda.policy.algorithms.muzero.search.rules import (
    Actions,
    Doubles,
    Floats,
    GumbelSettings,
    Mask,
    Nodes,
    SearchSettings,
)

__all__ = ["COMPILED", "GumbelSettings", "SearchSettings", "Tree", "new_tree"]


class Tree(Protocol):
    """The trees of n roots. Each has as many nodes as it was expanded times, and one more: node 0, the root.

    Memory is taken once, for all simulations; `reset` begins new trees in it. Values are scaled to 0 … 1 by the lowest
    and the highest that the tree has seen. Of equal scores the highest prior wins, and of equal priors the lowest
    action.

    By the rule of MuZero (Schrittwieser et al. 2020, appendix B) a walk from the root takes the action with the highest

        exploration(N) / (1 + n) · prior + scaled(reward + discount · value)

    where N simulations went on from the node and n took this action. An action that was not tried counts as the mean of
    those that were (below the root, with the mean of the level above as one more). Where none was tried all scores are
    equal, so the prior decides.

    By the rule of Gumbel MuZero (Danihelka et al. 2022) sequential halving shares out the simulations among those
    actions of the root with the highest noise + logit + sigma(value). Below the root the walk takes the action whose
    share of the simulations is furthest below softmax(logits + sigma(value)).
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
        legal. `noise` [n, actions] makes a search explore. By the rule of MuZero it is a draw from a Dirichlet
        distribution per root, and `noise_fraction` of the priors come from it; by that of Gumbel MuZero it is a draw
        from a Gumbel distribution per action, and `noise_fraction` is not used. Raises ValueError for other shapes,
        arrays that are not contiguous, numbers that are not finite, negative priors, and a root without a legal action;
        TypeError for other dtypes.
        """
        ...

    def select(self) -> tuple[Nodes, Actions]:
        """Return the place of the next node of each tree: its parent, int32 [n], and the action there, int64 [n].

        The arrays are the tree's own: it may write over them in the next call. Raises RuntimeError before `reset`, once
        all simulations are done, and for a second time without `expand`.
        """
        ...

    def expand(self, reward: Floats, prior: Floats, value: Floats) -> None:
        """Add a node to each tree where `select` said, its index one more than the last, and carry its value up.

        `reward` float32 [n] is that of the step to it, `prior` and `value` are as in `reset`. Raises RuntimeError
        without `select`, and ValueError and TypeError as `reset` does; nothing has changed then.
        """
        ...

    def visits(self) -> Nodes:
        """Return how many simulations took each action of the roots, int32 [n, actions]."""
        ...

    def root_values(self) -> Floats:
        """Return the mean of the root's own value and of all that came up to it, float32 [n]."""
        ...

    def q_values(self) -> Doubles:
        """Return the reward and discounted mean value of each action of the roots, float64 [n, actions].

        0 where no simulation took the action.
        """
        ...

    def outcome(self) -> tuple[Floats, Actions]:
        """Return what the policy is to become, float32 [n, actions], and the best action, int64 [n].

        By the rule of MuZero: the shares of the visits, and the action with the most (the lowest of equals). By that of
        Gumbel MuZero: the improved policy, softmax(logits + sigma(value)) with values of actions that were not tried
        filled in, and the winner of sequential halving. Raises RuntimeError before `reset`.
        """
        ...


_tree: type[NumpyTree] | type[CompiledTree]
try:
    from remuda.policy.algorithms.muzero.search.compiled_tree import CompiledTree
except ImportError:
    _tree = NumpyTree
else:
    _tree = CompiledTree

COMPILED = _tree is not NumpyTree
"""Whether MuZero searches at full speed here."""


def new_tree(roots: int, actions: int, settings: SearchSettings) -> Tree:
    """Return trees to be searched once they are reset. Raises ValueError without a root or an action."""
    return _tree(roots, actions, settings)
