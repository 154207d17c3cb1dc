"""Rescaling of values, so large returns need no clipping (Pohlen et al. 2018)."""

from __future__ import annotations

import torch

EPSILON = 1e-3
"""Slope for large numbers, which makes the scaling invertible."""


def scaled(numbers: torch.Tensor) -> torch.Tensor:
    """h(x) = sign(x)(sqrt(|x| + 1) - 1) + EPSILON x, as in R2D2 and MuZero."""
    size = numbers.abs()
    root_less_one = size / ((size + 1.0).sqrt() + 1.0)  # sqrt(size + 1) - 1, which would lose the digits of small ones
    return numbers.sign() * root_less_one + EPSILON * numbers


def unscaled(numbers: torch.Tensor) -> torch.Tensor:
    """The inverse of `scaled`."""
    size = numbers.abs()
    inner = size + 1.0 + EPSILON
    root = 2.0 * inner / ((1.0 + 4.0 * EPSILON * inner).sqrt() + 1.0)  # (sqrt(1 + 4 E inner) - 1) / (2 E), likewise
    return numbers.sign() * (root * root - 1.0)
