"""Weights of length 1, and perceptrons whose features have length 1 too (SimBaV2: Lee et al. 2025, arXiv 2502.15280).

With weights of length 1 the step size relative to the weights stays the same, however long a network learns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import nn

from remuda.policy.networks import program
from remuda.policy.networks.batch_norm import BatchNorm
from remuda.policy.networks.reading import Names, steps_of

_SHIFT = 3.0
"""Additional input, by which inputs of different length stay different at length 1."""
_EXPANSION = 4
"""Inner width of a block, as a multiple of the width."""


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


class Append(nn.Module):
    """Appends a constant number to each row: [n, k] -> [n, k + 1]."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self._number = number

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return torch.cat((inputs, inputs.new_full((inputs.shape[0], 1), self._number)), dim=1)

    def steps(self, names: Names) -> program.Steps:
        return (program.Append(self._number),)


class UnitLength(nn.Module):
    """Scales each row [n, features] to length 1."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """See the class."""
        squares = (inputs * inputs).sum(1, keepdim=True)
        return inputs * squares.clamp(min=program.UnitLength.LEAST_SQUARE).rsqrt()

    def steps(self, names: Names) -> program.Steps:
        return (program.UnitLength(),)


class Scale(nn.Module):
    """Multiplies each feature of [n, features] by a learned number."""

    def __init__(self, features: int, *, start: float, stored: float | None = None) -> None:
        """`start`: first factor. `stored`: first value of the parameter, `start` by default: steps of the optimizer
        change the factor by start / stored times as much."""
        super().__init__()
        first = start if stored is None else stored
        self.weight = nn.Parameter(torch.full((features,), first))
        self._times = start / first

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return inputs * self._factors()

    def steps(self, names: Names) -> tuple[program.Scale]:
        return (program.Scale(names.of(self.weight), self._times),)

    def _factors(self) -> torch.Tensor:
        return self.weight if self._times == 1.0 else self.weight * self._times


class Interpolation(nn.Module):
    """Moves each feature by a learned share from the input of modules to their output."""

    def __init__(self, inner: nn.Module, share: Scale) -> None:
        super().__init__()
        self.inner, self.share = inner, share

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[n, features] -> the same."""
        moved: torch.Tensor = inputs + self.share(self.inner(inputs) - inputs)
        return moved

    def steps(self, names: Names) -> program.Steps | None:
        inner, (share,) = steps_of(self.inner, names), self.share.steps(names)
        return None if inner is None else (program.Interpolation(inner, share),)


def hyperspherical_perceptron(widths: Sequence[int], *, unit_outputs: bool) -> nn.Sequential:
    """Make a perceptron of these widths: float32 [n, widths[0]] -> [n, widths[-1]]. Each width between is a residual
    block; all of these are equal.

    `unit_outputs`: the weights of the last layer have length 1 as well, as in the paper. False for outputs of any size.
    """
    inputs, *hidden, outputs = widths
    width, shares = hidden[0], 1.0 / (len(hidden) + 1)
    layers: list[nn.Module] = [Append(_SHIFT), UnitLength(), *_scaled(inputs + 1, width), UnitLength()]
    for _ in hidden:
        layers += [_block(width, shares), UnitLength()]
    last = UnitLinear(width, outputs, bias=True) if unit_outputs else nn.Linear(width, outputs)
    return nn.Sequential(*layers, *_scaled(width, width), last)


def _block(width: int, share: float) -> Interpolation:
    inner = _EXPANSION * width
    layers = nn.Sequential(*_scaled(width, inner), nn.ReLU(), UnitLinear(inner, width), UnitLength())
    return Interpolation(layers, Scale(width, start=share, stored=1.0 / math.sqrt(width)))


def _scaled(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return UnitLinear(inputs, outputs), Scale(outputs, start=math.sqrt(2.0 / outputs))
