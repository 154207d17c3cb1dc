"""The search trees of all roots of a vector: selection of the next node, and backup of values.

The trees are compiled. Installations without a C compiler use trees in numpy with the same numbers, bit for bit;
selecting and adding nodes then takes many times as long.
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
    """The trees of n roots. Node 0 is the root; each expansion adds a node.

    Memory is allocated once, for all simulations; `reset` begins new trees in it. Values are scaled to 0 … 1 by the
    lowest and highest value in the tree. Among equal scores the highest prior wins, and among equal priors the lowest
    action.

    By the rule of MuZero (Schrittwieser et al. 2020, appendix B) a walk from the root takes the action with the highest

        exploration(N) / (1 + n) · prior + scaled(reward + discount · value)

    with N simulations through the node and n simulations of this action. An untried action has the mean value of the
    tried actions (below the root, with the mean of the level above as one more). If no action was tried, all values are
    equal and the prior decides.

    By the rule of Gumbel MuZero (Danihelka et al. 2022) sequential halving distributes the simulations among the root's
    actions with the highest noise + logit + sigma(value). Below the root, the walk takes the action whose share of the
    simulations is furthest below softmax(logits + sigma(value)).
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

        Actions outside `legal` (bool [n, actions]) are never taken at the root; below the root all actions count as
        legal. `noise` [n, actions] makes a search explore. For MuZero it is drawn from a Dirichlet distribution per
        root and makes up `noise_fraction` of the priors. For Gumbel MuZero it is drawn from a Gumbel distribution per
        action, and `noise_fraction` is ignored. Raises ValueError for other shapes, arrays that are not contiguous,
        numbers that are not finite, negative priors, and a root without a legal action; TypeError for other dtypes.
        """
        ...

    def select(self) -> tuple[Nodes, Actions]:
        """Return the position of the next node of each tree: its parent, int32 [n], and its action, int64 [n].

        The next call may overwrite the arrays. Raises RuntimeError before `reset`, after the last simulation, and if
        called twice without `expand`.
        """
        ...

    def expand(self, reward: Floats, prior: Floats, value: Floats) -> None:
        """Add the selected node to each tree, with the next index, and back up its value.

        `reward` float32 [n] is that of the step to the node, `prior` and `value` are as in `reset`. Raises RuntimeError
        without `select`, and ValueError and TypeError as `reset` does, without changes.
        """
        ...

    def visits(self) -> Nodes:
        """Return the number of simulations of each root action, int32 [n, actions]."""
        ...

    def root_values(self) -> Floats:
        """Return the mean of the root's value and all values backed up to it, float32 [n]."""
        ...

    def q_values(self) -> Doubles:
        """Return reward plus discounted mean value of root actions, float64 [n, actions]; 0 without simulations."""
        ...

    def outcome(self) -> tuple[Floats, Actions]:
        """Return the policy target, float32 [n, actions], and the best action, int64 [n].

        MuZero: the shares of the visits, and the most visited action (the lowest index among equals). Gumbel MuZero:
        the improved policy, softmax(logits + sigma(value)) with completed values for untried actions, and the winner of
        sequential halving. Raises RuntimeError before `reset`.
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
"""True if MuZero searches at full speed here."""


def new_tree(roots: int, actions: int, settings: SearchSettings) -> Tree:
    """Make trees; call `reset` before a search. Raises ValueError without a root or an action."""
    return _tree(roots, actions, settings)
