"""The rules of the tree search: settings, roots, and the choice of actions by MuZero and by Gumbel MuZero."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Nodes = npt.NDArray[np.int32]
Actions = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class GumbelSettings:
    """Settings of Gumbel MuZero's search. Raises ValueError for invalid settings."""

    considered_actions: int = 16
    """Largest number of considered actions of a root; at most the number of simulations."""
    c_visit: float = 50.0
    """Larger values give values more weight against the network's policy, even with few simulations."""
    c_scale: float = 1.0
    """Weight of values, scaled to 0 … 1, against the network's policy. The paper has 1.0 for board games and 0.1 for
    Atari."""

    def __post_init__(self) -> None:
        if self.considered_actions < 1:
            raise ValueError(f"considered_actions must be at least 1, not {self.considered_actions}")
        if not (0 <= self.c_visit < np.inf and 0 < self.c_scale < np.inf):
            raise ValueError("c_visit must not be negative, and c_scale must be positive")


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search. Raises ValueError for invalid settings."""

    simulations: int
    """Nodes added to each tree, and evaluations of the network after the first."""
    discount: float = 0.997
    """Discount per step, 0 … 1."""
    players: Literal[1, 2] = 1
    """With 2, players alternate in a zero-sum game: values and rewards of a node are those of the player who acts
    there."""
    pb_c_base: float = 19652.0
    """Growth of exploration with the visits of a node; a larger base delays it."""
    pb_c_init: float = 1.25
    """Weight of the priors against the values."""
    value_delta_min: float = 0.01
    """Values of a tree within this range are not stretched to 0 … 1: such differences are noise."""
    gumbel: GumbelSettings | None = None
    """Search by the rule of Gumbel MuZero, which needs few simulations (2 to 16) and ignores pb_c_base and pb_c_init.
    None: by the rule of MuZero."""

    def __post_init__(self) -> None:
        if self.simulations < 1:
            raise ValueError(f"simulations must be at least 1, not {self.simulations}")
        if not 0 <= self.discount <= 1:
            raise ValueError(f"discount must be in 0 … 1, not {self.discount}")
        if not (self.pb_c_base > 0 and self.pb_c_init >= 0 and self.value_delta_min > 0):
            raise ValueError("pb_c_base and value_delta_min must be positive, and pb_c_init must not be negative")

    @property
    def sign(self) -> float:
        """Factor of the next state's value for the player who acts: 1.0 or -1.0."""
        return 1.0 if self.players == 1 else -1.0

    def exploration(self) -> Doubles:
        """Return the factor of a node's priors after N simulations of its actions, for N = 0 … simulations.

        Schrittwieser et al. 2020, appendix B: (log((N + pb_c_base + 1) / pb_c_base) + pb_c_init) · sqrt(N).
        """
        made = np.arange(self.simulations + 1, dtype=np.float64)
        return (np.log((made + self.pb_c_base + 1) / self.pb_c_base) + self.pb_c_init) * np.sqrt(made)

    def scale(self, low: Doubles, high: Doubles) -> Doubles:
        """Return the factor that scales values above `low` to 0 … 1."""
        return 1.0 / np.maximum(high - low, self.value_delta_min)


ILLEGAL = -1.0
"""Replaces the prior of an illegal action."""

SMALLEST = np.float32(np.finfo(np.float32).tiny)
"""Replaces a prior of 0, whose logarithm is not finite."""


@dataclass(frozen=True)
class Roots:
    """The roots of a search, as input of both trees."""

    prior: Floats
    """[n, actions]; ILLEGAL where an action must not be taken."""
    value: Floats
    """[n], the network's."""
    scores: Doubles
    """[n, actions]: noise + logits for Gumbel MuZero; [n, 0] for MuZero."""


def begin(
    settings: SearchSettings,
    shape: tuple[int, int],
    prior: Floats,
    value: Floats,
    legal: Mask | None,
    noise: Floats | None,
    noise_fraction: float,
) -> Roots:
    """Return the roots of a search with `shape` [n, actions]; the other arguments are those of Tree.reset.

    Priors (and, for MuZero, noise) are scaled to a sum of 1 over the legal actions. Numbers that
    are returned unchanged are checked by the trees. Raises ValueError as Tree.reset does.
    """
    if legal is None and noise is None and settings.gumbel is None:
        return Roots(prior, value, np.empty((len(prior), 0)))
    check_nodes(shape, prior, value)
    for array, name in ((legal, "legal"), (noise, "noise")):
        if array is not None and array.shape != shape:
            raise ValueError(f"{name} of shape {array.shape} for priors of shape {shape}")
    if legal is not None and not legal.any(axis=1).all():
        raise ValueError("a root without a legal action cannot be searched")
    if noise is not None and not np.isfinite(noise).all():
        raise ValueError("noise must be finite")
    if settings.gumbel is None:
        return Roots(_marked(_mixed(prior, legal, noise, noise_fraction), legal), value, np.empty((len(prior), 0)))
    marked = _marked(prior if legal is None else _shares(prior, legal), legal)
    scores = logits_of(marked).astype(np.float64)
    return Roots(marked, value, scores if noise is None else scores + noise)


def check_nodes(shape: tuple[int, int], prior: Floats, value: Floats, reward: Floats | None = None) -> None:
    """Require priors [n, actions] and numbers [n] that are finite, float32 and contiguous, and no negative prior.
    Raises TypeError for another type, else ValueError."""
    per_root = (value,) if reward is None else (reward, value)
    for array, wanted in ((prior, shape), *((each, shape[:1]) for each in per_root)):
        if array.dtype != np.float32:
            raise TypeError(f"an array of {array.dtype} instead of float32")
        if array.shape != wanted:
            raise ValueError(f"an array of shape {array.shape} instead of {wanted}")
        if not array.flags.c_contiguous:
            raise ValueError("an array is not C-contiguous")
    if not ((prior >= 0).all() and all(np.isfinite(array).all() for array in (prior, *per_root))):
        raise ValueError("rewards, priors and values must be finite, and priors not negative")


def logits_of(prior: Floats) -> Floats:
    """Return the logarithms of priors, float32. Numbers of illegal actions have no meaning."""
    logits: Floats = np.log(np.maximum(prior, SMALLEST))
    return logits


def _mixed(prior: Floats, legal: Mask | None, noise: Floats | None, noise_fraction: float) -> Floats | Doubles:
    """Mix priors with a fraction of noise. Noise from a Dirichlet distribution over all actions has the same
    distribution over the legal actions."""
    if not 0 <= noise_fraction <= 1:
        raise ValueError(f"noise_fraction must be in 0 … 1, not {noise_fraction}")
    kept = prior if legal is None else _shares(prior, legal)
    if noise is None:
        return kept
    if not (noise >= 0).all():
        raise ValueError("noise must not be negative")
    everything = np.ones(prior.shape, np.bool_) if legal is None else legal
    return (1 - noise_fraction) * kept + noise_fraction * _shares(noise, everything)


def _marked(prior: Floats | Doubles, legal: Mask | None) -> Floats:
    return (prior if legal is None else np.where(legal, prior, ILLEGAL)).astype(np.float32, order="C")


def _shares(weights: Floats, legal: Mask) -> Doubles:
    """Normalise weights over the legal actions; equal shares if all weights are 0."""
    kept = np.where(legal, weights, 0).astype(np.float64)
    kept = np.where(kept.any(axis=1, keepdims=True), kept, legal)
    shares: Doubles = kept / kept.sum(axis=1, keepdims=True)
    return shares


def mean_q(made: Nodes, q: Doubles, inherited: Doubles | None) -> Doubles:
    """Return the value of untried actions, [k]: the mean over the tried actions.

    `inherited` [k], the mean of the node above, counts as one more action; the root has none.
    """
    total: Doubles = q.cumsum(axis=1)[:, -1]
    tried: Indices = (made > 0).sum(axis=1)
    return total / np.maximum(tried, 1) if inherited is None else (inherited + total) / (tried + 1)


def puct_choice(
    prior: Floats, made: Nodes, q: Doubles, mean: Doubles, explore: Doubles, low: Doubles, scale: Doubles
) -> Indices:
    """Return the action with the highest explore / (1 + made) · prior + q, with q scaled to 0 … 1 within its tree."""
    normalized = np.clip((np.where(made > 0, q, mean[:, None]) - low[:, None]) * scale[:, None], 0.0, 1.0)
    score = explore[:, None] / (made + 1) * prior.astype(np.float64) + normalized
    return highest(np.where(prior == ILLEGAL, -np.inf, score), prior)


def highest(scores: Doubles, prior: Floats) -> Indices:
    """Return the action with the highest score; among equals the highest prior, then the first."""
    best: Indices = np.where(scores < scores.max(axis=1, keepdims=True), ILLEGAL, prior).argmax(axis=1)
    return best


def puct_outcome(visits: Nodes) -> tuple[Floats, Actions]:
    """By the rule of MuZero: the shares of the visits, float32 [n, actions], and the action with the most, int64 [n]
    (the lowest of equals). All roots have as many visits."""
    simulations = max(int(visits[0].sum()), 1)
    return (visits / simulations).astype(np.float32), visits.argmax(axis=1)


_LOWEST_POWER = -700.0
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""Parts of ln 2. The first part has few digits, so products with a number of halvings are exact."""
_TERMS = 13


def visits_wanted(considered: int, simulations: int) -> Nodes:
    """Return for each simulation the earlier number of simulations of its action, int32 [simulations].

    Sequential halving: all `considered` actions are tried equally often, then the better half, and so on, with about
    the same number of simulations for each half, down to two actions.
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


def halving_schedule(settings: GumbelSettings, simulations: int, actions: int) -> Nodes:
    """Return `visits_wanted` for each number of considered actions, int32 [most + 1, simulations]; row 0 is unused."""
    most = min(settings.considered_actions, simulations, actions)
    return np.stack([visits_wanted(max(considered, 1), simulations) for considered in range(most + 1)])


def completed_q(made: Nodes, q: Doubles, prior: Floats, value: Doubles) -> Doubles:
    """Return q of tried actions, and for all other actions the estimated value of the node.

    The estimate is the mean of the network's `value` [k], weighted as one simulation, and of the tried actions' q
    weighted by their priors, weighted as all simulations (equation 33 of the paper).
    """
    tried = made > 0
    weight = np.where(tried, np.maximum(prior, SMALLEST), 0.0).astype(np.float64)
    mass = weight.cumsum(axis=1)[:, -1]
    simulations = made.sum(axis=1).astype(np.float64)
    mean = (weight * q).cumsum(axis=1)[:, -1] / np.where(mass > 0, mass, 1.0)
    mixed = (value + simulations * mean) / (1.0 + simulations)
    return np.where(tried, q, mixed[:, None])


def transformed(completed: Doubles, made: Nodes, low: Doubles, scale: Doubles, settings: GumbelSettings) -> Doubles:
    """Return sigma(q) = (c_visit + most simulations of an action) · c_scale · q, with q scaled to 0 … 1 within its
    tree."""
    normalized: Doubles = np.clip((completed - low[:, None]) * scale[:, None], 0.0, 1.0)
    factor: Doubles = (settings.c_visit + made.max(axis=1, keepdims=True)) * settings.c_scale
    return factor * normalized


def root_choice(scores: Doubles, sigma: Doubles, made: Nodes, wanted: Nodes, prior: Floats) -> Indices:
    """Return the legal action with the highest scores + sigma among those with `wanted` [k] simulations.

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
    """Return probabilities proportional to the exponentials of scores."""
    weights = exponential(scores - scores.max(axis=1, keepdims=True))
    probabilities: Doubles = weights / weights.cumsum(axis=1)[:, -1:]
    return probabilities


def exponential(powers: Doubles) -> Doubles:
    """Return e to the power of non-positive numbers, 0 below -700.

    Written out as in C, since libraries differ in the last digit.
    """
    bounded = np.maximum(powers, _LOWEST_POWER)
    halvings = np.trunc(bounded * _LOG2_E - 0.5)
    rest = (bounded - halvings * _LN2_HIGH) - halvings * _LN2_LOW
    total = np.full(powers.shape, 1.0 / math.factorial(_TERMS))
    for term in range(_TERMS - 1, -1, -1):
        total = total * rest + 1.0 / math.factorial(term)
    return np.where(powers < _LOWEST_POWER, 0.0, np.ldexp(total, halvings.astype(np.int32)))


def gumbel_outcome(
    settings: SearchSettings, rule: GumbelSettings, roots: Roots, visits: Nodes, q: Doubles, low: Doubles, high: Doubles
) -> tuple[Floats, Actions]:
    """By the rule of Gumbel MuZero: the improved policy, float32 [n, actions], and the winner of sequential halving,
    int64 [n], of roots with these visits and values."""
    completed = completed_q(visits, q, roots.prior, roots.value.astype(np.float64))
    sigma = transformed(completed, visits, low, settings.scale(low, high), rule)
    policy = improved_policy(logits_of(roots.prior), sigma, roots.prior)
    best = root_choice(roots.scores, sigma, visits, visits.max(axis=1), roots.prior)
    return policy.astype(np.float32), best.astype(np.int64)
