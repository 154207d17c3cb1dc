"""The distributions of policy/distributions.py for learning: differentiable log probabilities and entropies."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import math

import torch

_LOG_2_PI = math.log(2.0 * math.pi)


class Categorical:
    """One of n indices per row, by logits float32 [rows, n]."""

    def __init__(self, logits: torch.Tensor) -> None:
        self._log_probs = torch.log_softmax(logits, dim=1)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Log probability of indices int64 [rows]: float32 [rows]."""
        return self._log_probs.gather(1, actions.unsqueeze(1)).squeeze(1)

    def entropy(self) -> torch.Tensor:
        """In nats: float32 [rows]."""
        return -(self._log_probs.exp() * self._log_probs.clamp(min=_SMALLEST)).sum(dim=1)


class Gaussian:
    """Independent normal numbers: mean float32 [rows, k], logarithm of the standard deviation float32 [k]."""

    def __init__(self, mean: torch.Tensor, log_std: torch.Tensor) -> None:
        self._mean = mean
        self._log_std = log_std

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Log density of numbers [rows, k], summed over k: float32 [rows]."""
        distance = (actions - self._mean) * torch.exp(-self._log_std)
        normaliser = self._log_std.sum() + 0.5 * len(self._log_std) * _LOG_2_PI
        return -0.5 * distance.square().sum(dim=1) - normaliser

    def entropy(self) -> torch.Tensor:
        """Differential entropy in nats: float32 [rows]."""
        total = self._log_std.sum() + 0.5 * len(self._log_std) * (1.0 + _LOG_2_PI)
        return total.expand(len(self._mean))


_SMALLEST = torch.finfo(torch.float32).min
"""Keeps 0 * log 0 from being no number."""
