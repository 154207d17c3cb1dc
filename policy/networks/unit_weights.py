"""Weights of length 1: the step size relative to the weights stays the same, however long a network learns."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from remuda.policy.networks.batch_norm import BatchNorm


class UnitLinear(nn.Linear):
    """A fully connected layer for UnitWeights, with orthogonal weights of length 1 at first."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = False) -> None:
        super().__init__(inputs, outputs, bias)
        nn.init.orthogonal_(self.weight)
        _normalise(self.weight)
        if bias:
            nn.init.zeros_(self.bias)


class UnitWeights:
    """Weights of each UnitLinear of a module, and of the layers before each BatchNorm."""

    def __init__(self, module: nn.Module) -> None:
        chains = (part for part in module.modules() if isinstance(part, nn.Sequential))
        pairs = (pair for chain in chains for pair in itertools.pairwise(chain))
        before = [layer for layer, after in pairs if isinstance(layer, nn.Linear) and isinstance(after, BatchNorm)]
        every = [*before, *(part for part in module.modules() if isinstance(part, UnitLinear))]
        self._weights = [layer.weight for layer in every]

    def normalise(self) -> None:
        """Scale the weights of each unit to length 1 (Palenicek et al. 2025, arXiv 2502.07523). Outputs stay equal
        before a BatchNorm, which divides by the length."""
        for weight in self._weights:
            _normalise(weight)


@torch.no_grad()
def _normalise(weight: torch.Tensor) -> None:
    weight.div_(weight.norm(dim=1, keepdim=True).clamp_min_(1e-8))
