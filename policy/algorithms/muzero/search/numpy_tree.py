"""The search tree in numpy: what MuZero searches with where there was no C compiler."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from remuda.policy.algorithms.muzero.search.roots import ILLEGAL, root_prior
from remuda.policy.algorithms.muzero.search.settings import Actions, Floats, Mask, Nodes, SearchSettings

_Doubles = npt.NDArray[np.float64]
_Indices = npt.NDArray[np.intp]


class NumpyTree:
    """See remuda.policy.algorithms.muzero.search.tree. A call walks down or up all trees together, level by level.

    Sums over actions are made one after the other (cumsum), as in C: sum adds in another order.
    """

    def __init__(self, roots: int, actions: int, settings: SearchSettings) -> None:
        if roots < 1 or actions < 1:
            raise ValueError(f"a tree needs at least one root and one action, not {roots} and {actions}")
        self.roots, self.actions, self.settings = roots, actions, settings
        self._discount = settings.sign * settings.discount
        self._exploration = settings.exploration()
        nodes = settings.simulations + 1
        self._value_sum = np.zeros((roots, nodes))
        self._visits = np.zeros((roots, nodes), np.int32)
        self._reward = np.zeros((roots, nodes))
        self._parent = np.zeros((roots, nodes), np.intp)
        self._action = np.zeros((roots, nodes), np.intp)
        # of the actions of each node:
        self._prior = np.zeros((roots, nodes, actions), np.float32)
        self._child = np.zeros((roots, nodes, actions), np.intp)  # 0 where there is none: the root is nobody's child
        self._made = np.zeros((roots, nodes, actions), np.int32)
        self._q = np.zeros((roots, nodes, actions))
        self._low = np.zeros(roots)
        self._high = np.zeros(roots)
        self._all = np.arange(roots)
        self._nodes = 0
        self._selected = False

    def reset(
        self,
        prior: Floats,
        value: Floats,
        *,
        legal: Mask | None = None,
        noise: Floats | None = None,
        noise_fraction: float = 0.0,
    ) -> None:
        """Forget the old trees and begin new ones with these roots."""
        self._check(prior=prior, value=value)
        self._prior[:, 0] = root_prior(prior, legal, noise, noise_fraction)
        self._begin(0)
        self._value_sum[:, 0] = value
        self._visits[:, 0] = 1
        self._low[:] = np.inf
        self._high[:] = -np.inf
        self._nodes = 1
        self._selected = False

    def select(self) -> tuple[Nodes, Actions]:
        """Return for each root the node to expand and the action there."""
        if self._selected or not 0 < self._nodes <= self.settings.simulations:
            raise RuntimeError("select comes after reset or expand, once for each simulation")
        walking, node, inherited = self._all, np.zeros(self.roots, np.intp), np.zeros(self.roots)
        at_root = True
        while len(walking):
            mean = self._mean_q(walking, node[walking], inherited, at_root)
            action = self._best(walking, node[walking], mean)
            self._parent[walking, self._nodes] = node[walking]
            self._action[walking, self._nodes] = action
            child = self._child[walking, node[walking], action]
            inherited = (self.settings.sign * mean)[child > 0]
            walking, child = walking[child > 0], child[child > 0]
            node[walking] = child
            at_root = False
        self._selected = True
        return self._parent[:, self._nodes].astype(np.int32), self._action[:, self._nodes].astype(np.int64)

    def expand(self, reward: Floats, prior: Floats, value: Floats) -> None:
        """Add what was selected to each tree, and carry its value up."""
        if not self._selected:
            raise RuntimeError("expand comes after select")
        self._check(prior=prior, value=value, reward=reward)
        new = self._nodes
        self._prior[:, new] = prior
        self._begin(new)
        self._reward[:, new] = reward
        self._child[self._all, self._parent[:, new], self._action[:, new]] = new
        self._back_up(np.asarray(value, np.float64))
        self._nodes += 1
        self._selected = False

    def visits(self) -> Nodes:
        """Return how often each root's actions were simulated, [n, actions]."""
        return self._made[:, 0].copy()

    def root_values(self) -> Floats:
        """Return the mean of all values that came up to each root, [n]."""
        return (self._value_sum[:, 0] / np.maximum(self._visits[:, 0], 1)).astype(np.float32)

    def q_values(self) -> _Doubles:
        """Return the mean return of each root's actions, [n, actions]; 0 where an action was not simulated."""
        return self._q[:, 0].copy()

    def _begin(self, node: int) -> None:
        """Forget what an older tree held at this place."""
        self._child[:, node] = 0
        self._made[:, node] = 0
        self._q[:, node] = 0
        self._value_sum[:, node] = 0
        self._visits[:, node] = 0

    def _mean_q(self, walking: _Indices, node: _Indices, inherited: _Doubles, at_root: bool) -> _Doubles:
        """What an action that was not simulated is taken to be worth: the mean of those that were.

        Below the root the mean of the node above counts as one more.
        """
        total: _Doubles = self._q[walking, node].cumsum(axis=1)[:, -1]
        tried: _Indices = (self._made[walking, node] > 0).sum(axis=1)
        return total / np.maximum(tried, 1) if at_root else (inherited + total) / (tried + 1)

    def _best(self, walking: _Indices, node: _Indices, mean: _Doubles) -> _Indices:
        """The action with the highest score; of equals that with the highest prior, and of these the first."""
        prior, made = self._prior[walking, node].astype(np.float64), self._made[walking, node]
        low = self._low[walking, None]
        scale = 1.0 / np.maximum(self._high[walking, None] - low, self.settings.value_delta_min)
        q = np.where(made > 0, self._q[walking, node], mean[:, None])
        explore = self._exploration[self._visits[walking, node] - 1]
        score = explore[:, None] / (made + 1) * prior + np.clip((q - low) * scale, 0.0, 1.0)
        score[prior == ILLEGAL] = -np.inf
        prior[score < score.max(axis=1, keepdims=True)] = ILLEGAL
        best: _Indices = prior.argmax(axis=1)
        return best

    def _back_up(self, value: _Doubles) -> None:
        walking, node = self._all, np.full(self.roots, self._nodes, np.intp)
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

    def _check(self, *, prior: Floats, value: Floats, reward: Floats | None = None) -> None:
        per_root = (value,) if reward is None else (reward, value)
        for array, shape in ((prior, (self.roots, self.actions)), *((each, (self.roots,)) for each in per_root)):
            if array.shape != shape:
                raise ValueError(f"an array of shape {array.shape} instead of {shape}")
        if not ((prior >= 0).all() and all(np.isfinite(array).all() for array in (prior, *per_root))):
            raise ValueError("rewards, priors and values must be finite, and priors not negative")
