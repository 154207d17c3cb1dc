"""The layers that MuZero's networks are made of: both normalisations, perceptrons, heads."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from remuda.policy.networks.trunks import is_tracing


class BatchNorm(nn.Module):
    """Batch normalisation (Ioffe and Szegedy 2015) of [n, features]; a batch of one row has no variance and is brought
    to the running scale, as all are outside training."""

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    EPSILON = 1e-5
    MOMENTUM = 0.1
    """Share of the newest batch in the running mean and variance."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Bring each feature to mean 0 and variance 1, then to the scale that was learned."""
        return functional.batch_norm(
            inputs,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=self.training and inputs.shape[0] > 1,
            momentum=self.MOMENTUM,
            eps=self.EPSILON,
        )

    def folded_into(self, weight: torch.Tensor, bias: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """The weight [outputs, …] and bias [outputs] of a layer that does what a layer followed by this normalisation
        does outside training, where it is a scale and an offset for each output. Both are copies."""
        scale = self.weight.detach() * (self.running_var + self.EPSILON).rsqrt()
        before = torch.zeros_like(self.running_mean) if bias is None else bias.detach()
        scaled = weight.detach() * scale.view(-1, *[1] * (weight.dim() - 1))
        return scaled, (before - self.running_mean) * scale + self.bias.detach()


def normalised(latent: torch.Tensor) -> torch.Tensor:
    """Bring each latent state, or the units of each row, [n, …], to mean 0 and variance 1 (Ba et al. 2016)."""
    if not is_tracing():
        return functional.layer_norm(latent, latent.shape[1:])
    axes = list(range(1, latent.dim()))  # ONNX has no shapes that are known only when it runs
    scaled: torch.Tensor = latent - latent.mean(axes, keepdim=True)
    return scaled * (latent.var(axes, correction=0, keepdim=True) + BatchNorm.EPSILON).rsqrt()


class LayerNorm(nn.Module):
    """`normalised` as a layer. It depends on nothing but its inputs, so a row means the same in training and in a
    search; batch normalisation does not promise that for rows that are rare, as those before the end of an episode are.
    It learns no scale: the layers before and after it do."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[n, …]"""
        return normalised(input)


class Representation(nn.Sequential):
    """Layers whose outputs [n, …] are latent states."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Latent states of encoded observations [n, …]."""
        for layer in self:
            input = layer(input)
        return normalised(input)


def layers(widths: Sequence[int], *, batch: bool = False) -> list[nn.Module]:
    """Fully connected layers, each followed by layer normalisation (with `batch`: batch normalisation) and relu."""
    made: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        made += [nn.Linear(inputs, outputs), BatchNorm(outputs) if batch else LayerNorm(), nn.ReLU()]
    return made


def perceptron(widths: Sequence[int], outputs: int) -> nn.Sequential:
    """Layers as `layers` makes them, and a linear one."""
    return nn.Sequential(*layers(widths), nn.Linear(widths[-1], outputs))


def last_layer(inputs: int, outputs: int) -> nn.Linear:
    """The linear layer that a head ends with. It starts at zero: a uniform policy, and values and rewards of 0."""
    last = nn.Linear(inputs, outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return last


def head(widths: Sequence[int], outputs: int) -> nn.Sequential:
    """Layers that read a latent state, and the last."""
    last = last_layer(widths[-1], outputs)  # drawn first: a seed's weights depend on the order
    return nn.Sequential(*layers(widths), last)
