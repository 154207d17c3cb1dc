"""Building blocks of acting policies, in numpy: distributions and exploration. Imports no torch."""

from __future__ import annotations

from remuda.policy.acting.distributions import (
    Categorical,
    CorrelatedNoise,
    EpsilonGreedy,
    Gaussian,
    MultiCategorical,
    SquashedGaussian,
    categorical,
    drawn_evenly,
    epsilon_greedy,
    masked,
    with_normal_noise,
)
from remuda.policy.acting.network import ActingNetwork

__all__ = [
    "ActingNetwork",
    "Categorical",
    "CorrelatedNoise",
    "EpsilonGreedy",
    "Gaussian",
    "MultiCategorical",
    "SquashedGaussian",
    "categorical",
    "drawn_evenly",
    "epsilon_greedy",
    "masked",
    "with_normal_noise",
]
