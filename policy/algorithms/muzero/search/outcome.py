"""What a search ends with: the policy that the network is to learn, and the action that is best."""

from __future__ import annotations

import numpy as np

from remuda.policy.algorithms.muzero.search import gumbel
from remuda.policy.algorithms.muzero.search.roots import Roots, logits_of
from remuda.policy.algorithms.muzero.search.settings import Actions, Doubles, Floats, Nodes, SearchSettings


def outcome(
    settings: SearchSettings, roots: Roots | None, visits: Nodes, q: Doubles, low: Doubles, high: Doubles
) -> tuple[Floats, Actions]:
    """Return the policy, float32 [n, actions], and the best action, int64 [n], of roots with these visits and values.

    By the rule of MuZero they are the shares of the visits, and the action with the most (the lowest of equals). By
    that of Gumbel MuZero they are the improved policy, and the winner of sequential halving. Raises RuntimeError where
    no search was begun.
    """
    if roots is None:
        raise RuntimeError("outcome comes after reset")
    if settings.gumbel is None:
        simulations = np.maximum(visits.sum(axis=1, keepdims=True), 1)
        return (visits / simulations).astype(np.float32), visits.argmax(axis=1)
    completed = gumbel.completed_q(visits, q, roots.prior, roots.value.astype(np.float64))
    sigma = gumbel.transformed(completed, visits, low, settings.scale(low, high), settings.gumbel)
    policy = gumbel.improved_policy(logits_of(roots.prior), sigma, roots.prior)
    best = gumbel.root_choice(roots.scores, sigma, visits, visits.max(axis=1), roots.prior)
    return policy.astype(np.float32), best.astype(np.int64)
