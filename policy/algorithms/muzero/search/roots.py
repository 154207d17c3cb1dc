"""What the roots begin with: the priors of legal actions, with noise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from remuda.policy.algorithms.muzero.search.settings import Floats, Mask

ILLEGAL = -1.0
"""In place of the prior of an action that must not be taken."""


def root_prior(prior: Floats, legal: Mask | None, noise: Floats | None, noise_fraction: float) -> Floats:
    """Return the priors [n, actions] that the search of the roots goes by; ILLEGAL where an action is not legal.

    Priors and noise are scaled so that those of legal actions add up to 1 (noise drawn from a Dirichlet distribution
    over all actions has then the same distribution over the legal ones). Raises ValueError for other shapes, a root
    without a legal action, and noise or a fraction that are none.
    """
    for array, name in ((legal, "legal"), (noise, "noise")):
        if array is not None and array.shape != prior.shape:
            raise ValueError(f"{name} of shape {array.shape} for priors of shape {prior.shape}")
    if not 0 <= noise_fraction <= 1:
        raise ValueError(f"a fraction of noise lies between 0 and 1, not at {noise_fraction}")
    if legal is not None and not legal.any(axis=1).all():
        raise ValueError("a root without a legal action cannot be searched")
    mixed = prior if legal is None else _shares(prior, legal)
    if noise is not None:
        if not (np.isfinite(noise) & (noise >= 0)).all():
            raise ValueError("noise must be finite and not negative")
        everything = np.ones(prior.shape, np.bool_) if legal is None else legal
        mixed = (1 - noise_fraction) * mixed + noise_fraction * _shares(noise, everything)
    return (mixed if legal is None else np.where(legal, mixed, ILLEGAL)).astype(np.float32)


def _shares(weights: Floats, legal: Mask) -> npt.NDArray[np.float64]:
    """Each legal action's share of the weights of all legal ones; equal shares where these are all 0."""
    kept = np.where(legal, weights, 0).astype(np.float64)
    kept = np.where(kept.any(axis=1, keepdims=True), kept, legal)
    shares: npt.NDArray[np.float64] = kept / kept.sum(axis=1, keepdims=True)
    return shares
