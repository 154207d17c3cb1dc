"""Normal numbers brought to -1 … 1 by tanh: actions and their density, as torch computes them."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math

import torch
from torch.nn import functional

from remuda.policy.acting.distributions import LOG_STD_MAX, LOG_STD_MIN

_EACH = 0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0)
"""What each number takes from the logarithm of a density, whatever it is."""


def draw(outputs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn outputs [n, 2 k] (means, then logarithms of standard deviations) and normal numbers [n, k] into actions in
    -1 … 1 [n, k], and the logarithm of the density of each among those in -1 … 1 [n].

    The density of tanh(u) is that of u divided by the slope of tanh, whose logarithm, log(1 - tanh²(u)), is written as
    2 (log 2 - u - softplus(-2 u)): this stays finite where tanh(u) has become 1. For a beta of -2 torch's softplus is
    -softplus(-2 u) / 2.
    """
    mean, log_std = outputs.chunk(2, dim=1)
    held = functional.hardtanh(log_std, LOG_STD_MIN, LOG_STD_MAX)
    before = mean + held.exp() * noise
    of_normal = torch.sub(-_EACH - 0.5 * noise.square(), held)
    of_tanh = torch.sub(before, functional.softplus(before, beta=-2.0), alpha=2.0)  # u + softplus(-2 u)
    return before.tanh(), torch.add(of_normal, of_tanh, alpha=2.0).sum(dim=1)
