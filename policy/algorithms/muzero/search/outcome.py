"""What a search ends with: the policy that the network is to learn, and the action that is best."""

from __future__ import annotations

import numpy as np

from remuda.policy.algorithms.muzero.search import gumbel
from remuda.policy.algorithms.muzero.search.roots import Roots, logits_of
from remuda.policy.algorithms.muzero.search.settings import (
    Actions,
    Doubles,
    Floats,
    GumbelSettings,
    Nodes,
    SearchSettings,
)


def most_visited(visits: Nodes) -> tuple[Floats, Actions]:
    """By the rule of MuZero: the shares of the visits, float32 [n, actions], and the action with the most, int64 [n]
    (the lowest of equals). All roots have as many visits."""
    simulations = max(int(visits[0].sum()), 1)
    return (visits / simulations).astype(np.float32), visits.argmax(axis=1)


def improved(
    settings: SearchSettings, rule: GumbelSettings, roots: Roots, visits: Nodes, q: Doubles, low: Doubles, high: Doubles
) -> tuple[Floats, Actions]:
    """By the rule of Gumbel MuZero: the improved policy, float32 [n, actions], and the winner of sequential halving,
    int64 [n], of roots with these visits and values."""
    completed = gumbel.completed_q(visits, q, roots.prior, roots.value.astype(np.float64))
    sigma = gumbel.transformed(completed, visits, low, settings.scale(low, high), rule)
    policy = gumbel.improved_policy(logits_of(roots.prior), sigma, roots.prior)
    best = gumbel.root_choice(roots.scores, sigma, visits, visits.max(axis=1), roots.prior)
    return policy.astype(np.float32), best.astype(np.int64)
