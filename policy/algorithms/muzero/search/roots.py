"""What the roots begin with: the priors of legal actions, and noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remuda.policy.algorithms.muzero.search.settings import Doubles, Floats, Mask, SearchSettings

ILLEGAL = -1.0
"""In place of the prior of an action that must not be taken."""

SMALLEST = np.float32(np.finfo(np.float32).tiny)
"""In place of a prior of 0, whose logarithm is no number."""


@dataclass(frozen=True)
class Roots:
    """The roots of a search, as both trees take them."""

    prior: Floats
    """[n, actions]; ILLEGAL where an action must not be taken."""
    value: Floats
    """[n], the network's."""
    scores: Doubles
    """[n, actions]: noise + logits by the rule of Gumbel MuZero; that of MuZero has no use for them, [n, 0]."""


def begin(
    settings: SearchSettings,
    shape: tuple[int, int],
    prior: Floats,
    value: Floats,
    legal: Mask | None,
    noise: Floats | None,
    noise_fraction: float,
) -> Roots:
    """Return the roots of a search, `shape` of which is [n, actions]; the other arguments are those of Tree.reset.

    Priors (and, by the rule of MuZero, noise) are scaled so that those of legal actions add up to 1. Raises ValueError
    as Tree.reset says, but looks at no number that it returns as it came: the trees do.
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
    """Raise ValueError unless these are priors [n, actions] and numbers [n], all finite, and no prior negative; and
    TypeError and ValueError where they are not float32, side by side in memory."""
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
    """Return the logarithms of priors, float32; of illegal actions, whatever number."""
    logits: Floats = np.log(np.maximum(prior, SMALLEST))
    return logits


def _mixed(prior: Floats, legal: Mask | None, noise: Floats | None, noise_fraction: float) -> Floats | Doubles:
    """Priors of which a fraction is noise. Drawn from a Dirichlet distribution over all actions, noise has the same
    distribution over the legal ones."""
    if not 0 <= noise_fraction <= 1:
        raise ValueError(f"a fraction of noise lies between 0 and 1, not at {noise_fraction}")
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
    """Each legal action's share of the weights of all legal ones; equal shares where these are all 0."""
    kept = np.where(legal, weights, 0).astype(np.float64)
    kept = np.where(kept.any(axis=1, keepdims=True), kept, legal)
    shares: Doubles = kept / kept.sum(axis=1, keepdims=True)
    return shares
