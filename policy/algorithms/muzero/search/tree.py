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
    GumbelSettings,
    Indices,
    Mask,
    Nodes,
    Roots,
    SearchSettings,
    begin,
    check_nodes,
    completed_q,
    gumbel_outcome,
    halving_schedule,
    logits_of,
    mean_q,
    node_choice,
    puct_choice,
    puct_outcome,
    root_choice,
    transformed,
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
