"""The search trees of all roots of a vector: selection of the next node, and backup of values.

The trees are compiled. Installations without a C compiler use trees in numpy with the same numbers, bit for bit;
selecting and adding nodes then takes many times as long.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from remuda.policy.algorithms.muzero.search.rules import (
    ILLEGAL,
    Actions,
    Doubles,
    Floats,
    Mask,
    Nodes,
    Roots,
    SearchSettings,
    begin,
    gumbel_outcome,
    halving_schedule,
    logits_of,
    puct_outcome,
)


class Tree(ABC):
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

    def __init__(self, roots: int, actions: int, settings: SearchSettings) -> None:
        """Make the trees of `roots` roots; call `reset` before a search. Raises ValueError without a root or an
        action."""
        self._shape, self._settings = (roots, actions), settings
        self._roots: Roots | None = None

    def reset(
        self,
        prior: Floats,
        value: Floats,
        *,
        legal: Mask | None = None,
        noise: Floats | None = None,
        noise_fraction: float = 0.0,
    ) -> None:
        """Begin new trees.

        Args:
            prior: float32 [n, actions], probabilities at the roots.
            value: float32 [n] of the roots.
            legal: bool [n, actions]. Other actions are never taken at the root; below, all actions count as legal.
            noise: [n, actions], makes a search explore. MuZero: drawn from a Dirichlet distribution per root. Gumbel
                MuZero: drawn from a Gumbel distribution per action.
            noise_fraction: share of the noise in MuZero's priors; Gumbel MuZero ignores it.

        Raises ValueError for other shapes, arrays that are not contiguous, numbers that are not finite, negative
        priors, and a root without a legal action; TypeError for other dtypes.
        """
        roots = begin(self._settings, self._shape, prior, value, legal, noise, noise_fraction)
        self._begin(roots, masked=legal is not None)
        self._roots = roots

    def outcome(self) -> tuple[Floats, Actions]:
        """Return the policy target, float32 [n, actions], and the best action, int64 [n].

        MuZero: the shares of the visits, and the most visited action (the lowest index among equals). Gumbel MuZero:
        the improved policy, softmax(logits + sigma(value)) with completed values for untried actions, and the winner of
        sequential halving. Raises RuntimeError before `reset`.
        """
        if self._roots is None:
            raise RuntimeError("outcome comes after reset")
        rule = self._settings.gumbel
        if rule is None:
            return puct_outcome(self.visits())
        return gumbel_outcome(self._settings, rule, self._roots, self.visits(), self.q_values(), *self._bounds())

    @abstractmethod
    def select(self) -> tuple[Nodes, Actions]:
        """Return the position of the next node of each tree: its parent, int32 [n], and its action, int64 [n].

        The next call may overwrite the arrays. Raises RuntimeError before `reset`, after the last simulation, and if
        called twice without `expand`.
        """

    @abstractmethod
    def expand(self, reward: Floats, prior: Floats, value: Floats) -> None:
        """Add the selected node to each tree, with the next index, and back up its value.

        `reward` float32 [n] is that of the step to the node, `prior` and `value` are as in `reset`. Raises RuntimeError
        without `select`, and ValueError and TypeError as `reset` does, without changes.
        """

    @abstractmethod
    def visits(self) -> Nodes:
        """Return the number of simulations of each root action, int32 [n, actions]."""

    @abstractmethod
    def root_values(self) -> Floats:
        """Return the mean of the root's value and all values backed up to it, float32 [n]."""

    @abstractmethod
    def q_values(self) -> Doubles:
        """Return reward plus discounted mean value of root actions, float64 [n, actions]; 0 without simulations."""

    @abstractmethod
    def _begin(self, roots: Roots, *, masked: bool) -> None:
        """Begin new trees; `masked`: some actions of roots may be illegal."""

    @abstractmethod
    def _bounds(self) -> tuple[Doubles, Doubles]:
        """Return the lowest and the highest values of the trees, both [n]."""


class CompiledTree(Tree):
    """Trees in C; see Tree."""

    def __init__(self, roots: int, actions: int, settings: SearchSettings) -> None:
        super().__init__(roots, actions, settings)
        from remuda.policy.algorithms.muzero.search import _tree  # absent without a C compiler

        self._tree = _tree.Tree(
            roots,
            actions,
            settings.simulations,
            settings.discount,
            settings.sign,
            settings.value_delta_min,
            settings.exploration(),
            _rule(actions, settings),
        )
        self._parents, self._actions = np.empty(roots, np.int32), np.empty(roots, np.int64)

    def _begin(self, roots: Roots, *, masked: bool) -> None:
        least = ILLEGAL if masked else 0.0
        self._tree.reset(roots.prior, roots.value, self._logits(roots.prior), roots.scores, least)

    def select(self) -> tuple[Nodes, Actions]:
        self._tree.select(self._parents, self._actions)
        return self._parents, self._actions

    def expand(self, reward: Floats, prior: Floats, value: Floats) -> None:
        self._tree.expand(reward, prior, value, self._logits(prior))

    def visits(self) -> Nodes:
        return np.frombuffer(self._tree.visits(), np.int32).reshape(self._shape)

    def root_values(self) -> Floats:
        return np.frombuffer(self._tree.root_values(), np.float32)

    def q_values(self) -> Doubles:
        return np.frombuffer(self._tree.q_values()).reshape(self._shape)

    def _bounds(self) -> tuple[Doubles, Doubles]:
        return np.frombuffer(self._tree.lows()), np.frombuffer(self._tree.highs())

    def _logits(self, prior: Floats) -> Floats | None:
        return None if self._settings.gumbel is None else logits_of(prior)


def _rule(actions: int, settings: SearchSettings) -> tuple[int, float, float, Nodes | None]:
    """Settings of Gumbel MuZero's rule for C; zeros and None for MuZero's rule."""
    if settings.gumbel is None:
        return 0, 0.0, 0.0, None
    schedule = halving_schedule(settings.gumbel, settings.simulations, actions)
    return len(schedule) - 1, settings.gumbel.c_visit, settings.gumbel.c_scale, schedule
