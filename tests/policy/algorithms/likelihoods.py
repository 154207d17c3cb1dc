"""Log probabilities and entropies by the textbook, for autograd to differentiate."""

from __future__ import annotations

import math

import torch

Likelihood = tuple[torch.Tensor, torch.Tensor]
"""Log probability of each action and entropy of each distribution: both [rows]."""


def categorical(logits: torch.Tensor, indices: torch.Tensor) -> Likelihood:
    logarithms = torch.log_softmax(logits, dim=1)
    return logarithms.gather(1, indices.unsqueeze(1)).squeeze(1), -(logarithms.exp() * logarithms).sum(dim=1)


def several(logits: torch.Tensor, indices: torch.Tensor, counts: tuple[int, ...]) -> Likelihood:
    """Likelihood of independent components with concatenated logits; indices [rows, components]."""
    parts = zip(torch.split(logits, list(counts), dim=1), indices.unbind(1), strict=True)
    log_probs, entropies = zip(*(categorical(own, chosen) for own, chosen in parts), strict=True)
    return torch.stack(log_probs).sum(dim=0), torch.stack(entropies).sum(dim=0)


def gaussian(mean: torch.Tensor, log_std: torch.Tensor, numbers: torch.Tensor) -> Likelihood:
    std = log_std.exp()
    log_densities = -((numbers - mean) ** 2) / (2 * std**2) - torch.log(std * math.sqrt(2 * math.pi))
    entropies = 0.5 * torch.log(2 * math.pi * math.e * std**2)
    return log_densities.sum(dim=1), entropies.sum().expand(len(mean))
