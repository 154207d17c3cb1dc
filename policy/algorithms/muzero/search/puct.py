"""The rule of MuZero (Schrittwieser et al. 2020, appendix B): which action of a node is simulated next.

Functions of rows of actions, [k, actions]; `made` is how many simulations took each action, `q` what it is worth so
far. They add and multiply in the order of the files in C, and sums over actions are made one after the other (cumsum).
"""

from __future__ import annotations

import numpy as np

from remuda.policy.algorithms.muzero.search.roots import ILLEGAL
from remuda.policy.algorithms.muzero.search.settings import Actions, Doubles, Floats, Indices, Nodes


def mean_q(made: Nodes, q: Doubles, inherited: Doubles | None) -> Doubles:
    """Return what an action that was not tried counts as, [k]: the mean of those that were.

    `inherited` [k], the mean of the node above, counts as one more; the root has none.
    """
    total: Doubles = q.cumsum(axis=1)[:, -1]
    tried: Indices = (made > 0).sum(axis=1)
    return total / np.maximum(tried, 1) if inherited is None else (inherited + total) / (tried + 1)


def choice(
    prior: Floats, made: Nodes, q: Doubles, mean: Doubles, explore: Doubles, low: Doubles, scale: Doubles
) -> Indices:
    """Return the action with the highest explore / (1 + made) · prior + q, where q is scaled to 0 … 1 by its tree."""
    normalized = np.clip((np.where(made > 0, q, mean[:, None]) - low[:, None]) * scale[:, None], 0.0, 1.0)
    score = explore[:, None] / (made + 1) * prior.astype(np.float64) + normalized
    return highest(np.where(prior == ILLEGAL, -np.inf, score), prior)


def highest(scores: Doubles, prior: Floats) -> Indices:
    """Return the action with the highest score; of equals that with the highest prior, and of these the first."""
    best: Indices = np.where(scores < scores.max(axis=1, keepdims=True), ILLEGAL, prior).argmax(axis=1)
    return best


def outcome(visits: Nodes) -> tuple[Floats, Actions]:
    """By the rule of MuZero: the shares of the visits, float32 [n, actions], and the action with the most, int64 [n]
    (the lowest of equals). All roots have as many visits."""
    simulations = max(int(visits[0].sum()), 1)
    return (visits / simulations).astype(np.float32), visits.argmax(axis=1)
