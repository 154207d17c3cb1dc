"""The search trees in numpy, for installations without a C compiler."""

from __future__ import annotations

import numpy as np

from remuda.policy.algorithms.muzero.search.rules import (
    ILLEGAL,
    Actions,
    Doubles,
    Floats,
    GumbelSettings,
    Indices,
    Nodes,
    Roots,
    SearchSettings,
    check_nodes,
    completed_q,
    halving_schedule,
    logits_of,
    mean_q,
    node_choice,
    puct_choice,
    root_choice,
    transformed,
)
from remuda.policy.algorithms.muzero.search.tree import Tree


class NumpyTree(Tree):
    """See Tree. A call walks down or up all trees together, level by level."""

    def __init__(self, roots: int, actions: int, settings: SearchSettings) -> None:
        if roots < 1 or actions < 1:
            raise ValueError(f"a tree needs at least one root and one action, not {roots} and {actions}")
        super().__init__(roots, actions, settings)
        nodes = settings.simulations + 1
        self._discount = settings.sign * settings.discount
        self._own_value = np.zeros((roots, nodes))
        self._value_sum = np.zeros((roots, nodes))
        self._visits = np.zeros((roots, nodes), np.int32)
        self._reward = np.zeros((roots, nodes))
        self._parent = np.zeros((roots, nodes), np.intp)
        self._action = np.zeros((roots, nodes), np.intp)
        # of the actions of each node:
        self._prior = np.zeros((roots, nodes, actions), np.float32)
        self._logits = np.zeros((roots, nodes, actions), np.float32)
        self._child = np.zeros((roots, nodes, actions), np.intp)  # 0 where there is none: the root is nobody's child
        self._made = np.zeros((roots, nodes, actions), np.int32)
        self._q = np.zeros((roots, nodes, actions))
        # of each tree:
        self._low = np.zeros(roots)
        self._high = np.zeros(roots)
        self._considered = np.zeros(roots, np.intp)
        self._all = np.arange(roots)
        self._nodes = 0
        self._selected = False
        self._exploration = settings.exploration()
        if settings.gumbel is not None:
            self._schedule = halving_schedule(settings.gumbel, settings.simulations, actions)

    def _begin(self, roots: Roots, *, masked: bool) -> None:
        if not masked:  # otherwise the priors before were checked
            check_nodes(self._shape, roots.prior, roots.value)
        self._low[:] = np.inf
        self._high[:] = -np.inf
        self._add(0, roots.prior, roots.value)
        self._value_sum[:, 0] = roots.value
        self._visits[:, 0] = 1
        if self._settings.gumbel is not None:
            self._considered = np.minimum((roots.prior != ILLEGAL).sum(axis=1), len(self._schedule) - 1)
        self._nodes = 1
        self._selected = False

    def select(self) -> tuple[Nodes, Actions]:
        if self._roots is None or self._selected or self._nodes > self._settings.simulations:
            raise RuntimeError("select comes after reset or expand, once for each simulation")
        walking, node = self._all, np.zeros(len(self._all), np.intp)
        handed_down = np.zeros(len(self._all))
        while len(walking):
            if self._settings.gumbel is None:
                action = self._by_puct(walking, node, handed_down)
            elif node[0] == 0:  # all set out from their roots together
                action = self._by_halving(self._roots, self._settings.gumbel)
            else:
                action = self._by_improved_policy(walking, node, self._settings.gumbel)
            self._parent[walking, self._nodes] = node
            self._action[walking, self._nodes] = action
            child = self._child[walking, node, action]
            walking, node = walking[child > 0], child[child > 0]
        self._selected = True
        return self._parent[:, self._nodes].astype(np.int32), self._action[:, self._nodes].astype(np.int64)

    def expand(self, reward: Floats, prior: Floats, value: Floats) -> None:
        if not self._selected:
            raise RuntimeError("expand comes after select")
        check_nodes(self._shape, prior, value, reward)
        new = self._nodes
        self._add(new, prior, value)
        self._reward[:, new] = reward
        self._child[self._all, self._parent[:, new], self._action[:, new]] = new
        self._back_up(value.astype(np.float64))
        self._nodes += 1
        self._selected = False

    def visits(self) -> Nodes:
        return self._made[:, 0].copy()

    def root_values(self) -> Floats:
        return (self._value_sum[:, 0] / np.maximum(self._visits[:, 0], 1)).astype(np.float32)

    def q_values(self) -> Doubles:
        return self._q[:, 0].copy()

    def _bounds(self) -> tuple[Doubles, Doubles]:
        return self._low, self._high

    def _add(self, node: int, prior: Floats, value: Floats) -> None:
        """Initialise a node without visits, over the data of an older tree."""
        self._prior[:, node] = prior
        self._own_value[:, node] = value
        self._child[:, node] = 0
        self._made[:, node] = 0
        self._q[:, node] = 0
        self._value_sum[:, node] = 0
        self._visits[:, node] = 0
        if self._settings.gumbel is not None:  # values of nodes stand in for those of actions that were not tried
            self._logits[:, node] = logits_of(np.ascontiguousarray(prior, np.float32))
            self._low = np.minimum(self._low, self._own_value[:, node])
            self._high = np.maximum(self._high, self._own_value[:, node])

    def _by_puct(self, walking: Indices, node: Indices, handed_down: Doubles) -> Indices:
        """Choose the next action of the walk; writes the mean of the node's actions to `handed_down` for the next
        level."""
        low, made, q = self._low[walking], self._made[walking, node], self._q[walking, node]
        mean = mean_q(made, q, None if node[0] == 0 else handed_down[walking])
        handed_down[walking] = self._settings.sign * mean
        explore = self._exploration[self._visits[walking, node] - 1]
        scale = self._settings.scale(low, self._high[walking])
        return puct_choice(self._prior[walking, node], made, q, mean, explore, low, scale)

    def _by_halving(self, roots: Roots, settings: GumbelSettings) -> Indices:
        wanted = self._schedule[self._considered, self._nodes - 1]
        sigma = self._sigma(self._all, np.zeros_like(self._all), settings)
        return root_choice(roots.scores, sigma, self._made[:, 0], wanted, roots.prior)

    def _by_improved_policy(self, walking: Indices, node: Indices, settings: GumbelSettings) -> Indices:
        logits, prior = self._logits[walking, node], self._prior[walking, node]
        return node_choice(logits, self._sigma(walking, node, settings), self._made[walking, node], prior)

    def _sigma(self, walking: Indices, node: Indices, settings: GumbelSettings) -> Doubles:
        """The transformed values of a node's actions."""
        low, made, prior = self._low[walking], self._made[walking, node], self._prior[walking, node]
        completed = completed_q(made, self._q[walking, node], prior, self._own_value[walking, node])
        return transformed(completed, made, low, self._settings.scale(low, self._high[walking]), settings)

    def _back_up(self, value: Doubles) -> None:
        walking, node = self._all, np.full(len(self._all), self._nodes, np.intp)
        while True:
            self._value_sum[walking, node] += value
            self._visits[walking, node] += 1
            below = node > 0
            walking, node, value = walking[below], node[below], value[below]
            if not len(walking):
                return
            above, visits = self._parent[walking, node], self._visits[walking, node]
            reward = self._reward[walking, node]
            q = reward + self._discount * (self._value_sum[walking, node] / visits)
            self._q[walking, above, self._action[walking, node]] = q
            self._made[walking, above, self._action[walking, node]] = visits
            self._low[walking] = np.minimum(self._low[walking], q)
            self._high[walking] = np.maximum(self._high[walking], q)
            value = reward + self._discount * value
            node = above
