"""Normal numbers brought to -1 … 1 by tanh: their density, and its slope, as torch computes them."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.nn import functional

from remuda.policy.acting.distributions import LOG_STD_MAX, LOG_STD_MIN

_EACH = 0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0)
"""What each number takes from the logarithm of a density, whatever it is."""


class Drawn(NamedTuple):
    """Actions drawn from the actor's outputs, all [n, k] but `log_prob`."""

    action: torch.Tensor
    """In -1 … 1."""
    log_prob: torch.Tensor
    """[n]: the logarithm of the density of each action among those in -1 … 1."""
    deviation: torch.Tensor
    """What the noise added to the mean, before tanh."""
    within: torch.Tensor
    """bool: whether the logarithm of the standard deviation lay within its bounds, or is held there."""


def draw(outputs: torch.Tensor, noise: torch.Tensor) -> Drawn:
    """Turn outputs [n, 2 k] (means, then logarithms of standard deviations) and normal numbers [n, k] into actions.

    The density of tanh(u) is that of u divided by the slope of tanh, whose logarithm, log(1 - tanh²(u)), is written as
    2 (log 2 - u - softplus(-2 u)): this stays finite where tanh(u) has become 1. For a beta of -2 torch's softplus is
    -softplus(-2 u) / 2.
    """
    mean, log_std = outputs.chunk(2, dim=1)
    held = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
    deviation = held.exp() * noise
    before = mean + deviation
    steepness = torch.sub(before, functional.softplus(before, beta=-2.0), alpha=2.0)  # u + softplus(-2 u)
    below = torch.add(held, noise.square(), alpha=0.5).sub(steepness, alpha=2.0).sum(dim=1)
    return Drawn(before.tanh(), -noise.shape[1] * _EACH - below, deviation, held == log_std)


def slope(
    drawn: Drawn, by_action: torch.Tensor, by_log_prob: float | torch.Tensor, *, rows: int | None = None
) -> torch.Tensor:
    """Chain a loss's gradient by the actions [n, k] and by their log probabilities (the same number for each) back to
    the outputs [n, 2 k], for the first `rows` actions that were drawn.

    The log probability rises by 2 tanh(u) with u, and falls by 1 with the logarithm of the standard deviation; where
    that is held at a bound it has no gradient.
    """
    action, deviation, within = drawn.action[:rows], drawn.deviation[:rows], drawn.within[:rows]
    # by_action * (1 - action²) + 2 * by_log_prob * action
    by_mean = torch.addcmul(by_action, action, 2.0 * by_log_prob - by_action * action)
    by_log_std = (by_mean * deviation - by_log_prob) * within
    return torch.cat((by_mean, by_log_std), dim=1)
