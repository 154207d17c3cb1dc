"""MuZero's networks: representation, dynamics, prediction, and the two heads that consistency compares."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from remuda.policy.networks.images import ImageLayout
from remuda.policy.networks.torch_networks import ConvolutionTrunk

CONSISTENCY = "consistency."
"""Names of the tensors that only training needs begin so."""


@dataclass(frozen=True)
class NetworkShape:
    """What the networks are built from."""

    features: int
    """Numbers of an encoded observation that is no image."""
    actions: int
    hidden: tuple[int, ...]
    """Units of each hidden layer between observation and latent state, at least one."""
    latent: int
    """Numbers of a latent state, and units of the hidden layers that read one."""
    head_hidden: int
    atoms: int
    """Of the distributions over values and rewards."""
    image: ImageLayout | None = None
    projection: tuple[int, int] | None = None
    """Units of the projection, and of the hidden layer of its prediction; None without consistency."""


class Prediction(NamedTuple):
    """Policy and value of latent states [n, latent]."""

    policy: torch.Tensor
    """Logits [n, actions]."""
    value: torch.Tensor
    """Logits [n, atoms]."""


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


class MuZeroNetwork(nn.Module):
    """The model that is learned and searched (Schrittwieser et al. 2020, section 3), as perceptrons.

    Layers are followed by batch normalisation and relu. A latent state has mean 0 and variance 1, from representation
    and dynamics alike, so that a search may go deeper than training unrolls. The dynamics is one residual block: it
    says how the latent state changes. Of images, convolutions come before the representation. The last layers of all
    heads start at zero: a policy that is uniform, and values and rewards of 0.
    """

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        latent, head = shape.latent, shape.head_hidden
        self.actions = shape.actions
        self.trunk = None if shape.image is None else ConvolutionTrunk(shape.image)
        features = shape.features if shape.image is None else shape.image.features
        self.representation = _perceptron((features, *shape.hidden), latent)
        self.dynamics = _perceptron((latent + shape.actions, latent), latent)
        self.reward = _head((latent, head), shape.atoms)
        self.common = nn.Sequential(*_layers((latent, latent)))
        self.value = _head((latent, head), shape.atoms)
        self.policy = _head((latent, head), shape.actions)
        self.consistency = None if shape.projection is None else Consistency(latent, *shape.projection)

    def represent(self, observations: torch.Tensor) -> torch.Tensor:
        """Latent states [n, latent] of encoded observations [n, …]."""
        if self.trunk is not None:
            observations = self.trunk(observations)
        return normalised(self.representation(observations))

    def imagine(self, latent: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """The latent states [n, latent] that actions, int64 [n], lead to."""
        taken = functional.one_hot(actions, self.actions).to(latent.dtype)
        return normalised(latent + self.dynamics(torch.cat((latent, taken), dim=1)))

    def predict(self, latent: torch.Tensor) -> Prediction:
        """Policy and value of latent states."""
        features = self.common(latent)
        return Prediction(self.policy(features), self.value(features))

    def rewards(self, latent: torch.Tensor) -> torch.Tensor:
        """Logits [n, atoms] of what the action brought that led to these latent states."""
        logits: torch.Tensor = self.reward(latent)
        return logits

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """The policy without a search: logits [n, actions] of encoded observations."""
        return self.predict(self.represent(observations)).policy


class Consistency(nn.Module):
    """Whether a latent state that was imagined resembles that of what was seen (Ye et al. 2021, section 4.1).

    Both are projected; from the imagined one's projection the other is predicted, as in SimSiam (Chen and He 2021),
    where the gradient goes one way only, so that they cannot agree on saying nothing.
    """

    def __init__(self, latent: int, units: int, bottleneck: int) -> None:
        super().__init__()
        self.projection = nn.Sequential(*_layers((latent, units, units)), nn.Linear(units, units), BatchNorm(units))
        self.prediction = _perceptron((units, bottleneck), units)

    def forward(self, imagined: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Cosine of the angle between the two, [n]; no gradient goes to the states `seen`."""
        with torch.no_grad():
            target = self.projection(seen)
        predicted = self.prediction(self.projection(imagined))
        with torch.autocast(imagined.device.type, enabled=False):  # sums of products are not
            return cosine(predicted.to(imagined.dtype), target.to(imagined.dtype))


def cosine(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Of the angle between rows [n, k] of each: [n]. By lengths and one product it passes over them half as often as
    torch's own function does, which divides rows first."""
    lengths: torch.Tensor = torch.linalg.vector_norm(one, dim=1) * torch.linalg.vector_norm(other, dim=1)
    products: torch.Tensor = (one * other).sum(1)
    return products / lengths.clamp(min=1e-8)


def normalised(latent: torch.Tensor) -> torch.Tensor:
    """Bring each latent state [n, latent] to mean 0 and variance 1 (Ba et al. 2016)."""
    return functional.layer_norm(latent, latent.shape[1:])


def _perceptron(widths: Sequence[int], outputs: int) -> nn.Sequential:
    return nn.Sequential(*_layers(widths), nn.Linear(widths[-1], outputs))


def _head(widths: Sequence[int], outputs: int) -> nn.Sequential:
    last = nn.Linear(widths[-1], outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*_layers(widths), last)


def _layers(widths: Sequence[int]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), BatchNorm(outputs), nn.ReLU()]
    return layers
