"""The distributions of policy/acting for learning: log probabilities and entropies, and their gradients.

The gradients are written out, so that an update needs no graph beyond the network's. Nothing here is recorded.
"""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import math

import torch

from remuda.policy.acting.components import runs_of

_LOG_2_PI = math.log(2.0 * math.pi)


class Categorical:
    """One of n indices per row, by logits float32 [rows, n]."""

    def __init__(self, logits: torch.Tensor) -> None:
        self._log_probs = torch.log_softmax(logits, dim=1)
        self._probs = self._log_probs.exp()

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Log probability of indices int64 [rows]: float32 [rows]."""
        return self._log_probs.gather(1, actions.unsqueeze(1)).squeeze(1)

    def entropy(self) -> torch.Tensor:
        """In nats: float32 [rows]."""
        return -(self._probs * self._log_probs.clamp(min=_SMALLEST)).sum(dim=1)


class MultiCategorical:
    """Independent indices per row, one of each component: logits float32 [rows, sum of counts], those of the first
    component first."""

    def __init__(self, logits: torch.Tensor, counts: tuple[int, ...]) -> None:
        """`counts`: how many values each component has."""
        self._rows = len(logits)
        self._runs = [(Categorical(logits[:, run.logits].reshape(-1, run.values)), run) for run in runs_of(counts)]

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Log probability of indices int64 [rows, components], the sum over the components: float32 [rows]."""
        return self._summed([one.log_prob(actions[:, run.components].reshape(-1)) for one, run in self._runs])

    def entropy(self) -> torch.Tensor:
        """In nats, the sum over the components: float32 [rows]."""
        return self._summed([one.entropy() for one, _ in self._runs])

    def _summed(self, numbers: list[torch.Tensor]) -> torch.Tensor:
        own = zip(numbers, self._runs, strict=True)
        return torch.cat([each.reshape(self._rows, run.number) for each, (_, run) in own], dim=1).sum(dim=1)


def categorical(logits: torch.Tensor, counts: tuple[int, ...]) -> Categorical | MultiCategorical:
    """As remuda.policy.acting.distributions.categorical."""
    return MultiCategorical(logits, counts) if counts else Categorical(logits)


class Gaussian:
    """Independent normal numbers: mean float32 [rows, k], logarithm of the standard deviation float32 [k]."""

    def __init__(self, mean: torch.Tensor, log_std: torch.Tensor) -> None:
        self._mean = mean
        self._log_std = log_std

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Log density of numbers [rows, k], summed over k: float32 [rows]."""
        normaliser = self._log_std.sum() + 0.5 * len(self._log_std) * _LOG_2_PI
        return -0.5 * self._distance(actions).square().sum(dim=1) - normaliser

    def entropy(self) -> torch.Tensor:
        """Differential entropy in nats: float32 [rows]."""
        total = self._log_std.sum() + 0.5 * len(self._log_std) * (1.0 + _LOG_2_PI)
        return total.expand(len(self._mean))

    def _distance(self, actions: torch.Tensor) -> torch.Tensor:
        """From the mean, in standard deviations."""
        return (actions - self._mean) * torch.exp(-self._log_std)


_SMALLEST = torch.finfo(torch.float32).min
"""Keeps 0 * log 0 from being no number."""
Distribution = Categorical | MultiCategorical | Gaussian
"""What a policy may be."""
