"""The rule of Gumbel MuZero (Danihelka et al. 2022): which actions are tried, and what the policy becomes.

Functions of rows of actions, [k, actions]; `made` is how many simulations took each action, `q` what it is worth so
far. They add and multiply in the order of the files in C, and sums over actions are made one after the other (cumsum).
"""

from __future__ import annotations

import math

import numpy as np

from remuda.policy.algorithms.muzero.search.puct import highest
from remuda.policy.algorithms.muzero.search.roots import ILLEGAL, SMALLEST, Roots, logits_of
from remuda.policy.algorithms.muzero.search.settings import (
    Actions,
    Doubles,
    Floats,
    GumbelSettings,
    Indices,
    Nodes,
    SearchSettings,
)

_LOWEST_POWER = -700.0
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""Their sum is ln 2; the first has so few digits that its product with a number of halvings is exact."""
_TERMS = 13


def visits_wanted(considered: int, simulations: int) -> Nodes:
    """Return for each simulation how often the action that it takes was simulated before, int32 [simulations].

    Sequential halving: all `considered` actions are tried equally often, then the better half of them, and so on, with
    about the same number of simulations for each half; two are left at the end.
    """
    rounds = max(math.ceil(math.log2(considered)), 1)
    wanted: list[int] = []
    tried, left = 0, considered
    while len(wanted) < simulations:
        for _ in range(max(simulations // (rounds * left), 1)):
            wanted += [tried] * left
            tried += 1
        left = max(left // 2, min(considered, 2))
    return np.array(wanted[:simulations], np.int32)


def schedule(settings: GumbelSettings, simulations: int, actions: int) -> Nodes:
    """Return `visits_wanted` for each number of considered actions, int32 [most + 1, simulations]; row 0 is unused."""
    most = min(settings.considered_actions, simulations, actions)
    return np.stack([visits_wanted(max(considered, 1), simulations) for considered in range(most + 1)])


def completed_q(made: Nodes, q: Doubles, prior: Floats, value: Doubles) -> Doubles:
    """Return q where an action was tried, and elsewhere the same for all: what the node is worth as far as is known.

    That is the mean of the network's `value` [k], which counts as one simulation, and of the tried actions' q weighted
    by their priors, which counts as all simulations (equation 33 of the paper).
    """
    tried = made > 0
    weight = np.where(tried, np.maximum(prior, SMALLEST), 0.0).astype(np.float64)
    mass = weight.cumsum(axis=1)[:, -1]
    simulations = made.sum(axis=1).astype(np.float64)
    mean = (weight * q).cumsum(axis=1)[:, -1] / np.where(mass > 0, mass, 1.0)
    mixed = (value + simulations * mean) / (1.0 + simulations)
    return np.where(tried, q, mixed[:, None])


def transformed(completed: Doubles, made: Nodes, low: Doubles, scale: Doubles, settings: GumbelSettings) -> Doubles:
    """Return sigma(q) = (c_visit + most simulations of an action) · c_scale · q, q scaled to 0 … 1 by its tree."""
    normalized: Doubles = np.clip((completed - low[:, None]) * scale[:, None], 0.0, 1.0)
    factor: Doubles = (settings.c_visit + made.max(axis=1, keepdims=True)) * settings.c_scale
    return factor * normalized


def root_choice(scores: Doubles, sigma: Doubles, made: Nodes, wanted: Nodes, prior: Floats) -> Indices:
    """Return the action with the highest scores + sigma among legal ones that were simulated as often as `wanted` [k].

    `scores` are Gumbel noise + logits.
    """
    allowed = (made == wanted[:, None]) & (prior != ILLEGAL)
    return highest(np.where(allowed, scores + sigma, -np.inf), prior)


def node_choice(logits: Floats, sigma: Doubles, made: Nodes, prior: Floats) -> Indices:
    """Return the action whose share of the simulations is furthest below its probability in the improved policy."""
    shares = made / (1.0 + made.sum(axis=1, keepdims=True))
    return highest(softmax(logits + sigma) - shares, prior)


def improved_policy(logits: Floats, sigma: Doubles, prior: Floats) -> Doubles:
    """Return the probabilities of the improved policy, softmax(logits + sigma); 0 for illegal actions."""
    scores = np.where(prior == ILLEGAL, -np.inf, logits + sigma)
    return softmax(scores)


def softmax(scores: Doubles) -> Doubles:
    """Return probabilities that are proportional to the exponentials of scores."""
    weights = exponential(scores - scores.max(axis=1, keepdims=True))
    probabilities: Doubles = weights / weights.cumsum(axis=1)[:, -1:]
    return probabilities


def exponential(powers: Doubles) -> Doubles:
    """Return e to the power of numbers that are not positive, 0 below -700.

    It is written out as in C, since libraries differ in the last digit.
    """
    bounded = np.maximum(powers, _LOWEST_POWER)
    halvings = np.trunc(bounded * _LOG2_E - 0.5)
    rest = (bounded - halvings * _LN2_HIGH) - halvings * _LN2_LOW
    total = np.full(powers.shape, 1.0 / math.factorial(_TERMS))
    for term in range(_TERMS - 1, -1, -1):
        total = total * rest + 1.0 / math.factorial(term)
    return np.where(powers < _LOWEST_POWER, 0.0, np.ldexp(total, halvings.astype(np.int32)))


def outcome(
    settings: SearchSettings, rule: GumbelSettings, roots: Roots, visits: Nodes, q: Doubles, low: Doubles, high: Doubles
) -> tuple[Floats, Actions]:
    """By the rule of Gumbel MuZero: the improved policy, float32 [n, actions], and the winner of sequential halving,
    int64 [n], of roots with these visits and values."""
    completed = completed_q(visits, q, roots.prior, roots.value.astype(np.float64))
    sigma = transformed(completed, visits, low, settings.scale(low, high), rule)
    policy = improved_policy(logits_of(roots.prior), sigma, roots.prior)
    best = root_choice(roots.scores, sigma, visits, visits.max(axis=1), roots.prior)
    return policy.astype(np.float32), best.astype(np.int64)
