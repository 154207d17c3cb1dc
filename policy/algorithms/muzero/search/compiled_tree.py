"""The search trees in C, for installations with a C compiler."""

from __future__ import annotations

import numpy as np

from remuda.policy.algorithms.muzero.search._tree import Tree
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


class CompiledTree:
    """See remuda.policy.algorithms.muzero.search.tree."""

    def __init__(self, roots: int, actions: int, settings: SearchSettings) -> None:
        self._tree = Tree(
            roots,
            actions,
            settings.simulations,
            settings.discount,
            settings.sign,
            settings.value_delta_min,
            settings.exploration(),
            _rule(actions, settings),
        )
        self._shape = (roots, actions)
        self._settings = settings
        self._parents, self._actions = np.empty(roots, np.int32), np.empty(roots, np.int64)
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
        roots = begin(self._settings, self._shape, prior, value, legal, noise, noise_fraction)
        least = 0.0 if legal is None else ILLEGAL
        self._tree.reset(roots.prior, roots.value, self._logits(roots.prior), roots.scores, least)
        self._roots = roots

    def select(self) -> tuple[Nodes, Actions]:
        """Return for each root the node to expand and its action."""
        self._tree.select(self._parents, self._actions)
        return self._parents, self._actions

    def expand(self, reward: Floats, prior: Floats, value: Floats) -> None:
        """Add the selected nodes to the trees, and back up their values."""
        self._tree.expand(reward, prior, value, self._logits(prior))

    def visits(self) -> Nodes:
        """Return the number of simulations of each root's actions, [n, actions]."""
        return np.frombuffer(self._tree.visits(), np.int32).reshape(self._shape)

    def root_values(self) -> Floats:
        """Return the mean of all values backed up to each root, [n]."""
        return np.frombuffer(self._tree.root_values(), np.float32)

    def q_values(self) -> Doubles:
        """Return the mean return of each root's actions, [n, actions]; 0 without simulations."""
        return np.frombuffer(self._tree.q_values()).reshape(self._shape)

    def outcome(self) -> tuple[Floats, Actions]:
        """Return the policy to learn, [n, actions], and the best action, [n]."""
        if self._roots is None:
            raise RuntimeError("outcome comes after reset")
        if self._settings.gumbel is None:
            return puct_outcome(self.visits())
        low, high = np.frombuffer(self._tree.lows()), np.frombuffer(self._tree.highs())
        return gumbel_outcome(
            self._settings, self._settings.gumbel, self._roots, self.visits(), self.q_values(), low, high
        )

    def _logits(self, prior: Floats) -> Floats | None:
        return None if self._settings.gumbel is None else logits_of(prior)


def _rule(actions: int, settings: SearchSettings) -> tuple[int, float, float, Nodes | None]:
    """Settings of Gumbel MuZero's rule for C; zeros and None without it."""
    if settings.gumbel is None:
        return 0, 0.0, 0.0, None
    schedule = halving_schedule(settings.gumbel, settings.simulations, actions)
    return len(schedule) - 1, settings.gumbel.c_visit, settings.gumbel.c_scale, schedule
