"""The networks that algorithms learn."""

# torch's annotations are partial: pyright does not know what from_numpy takes.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import itertools
import math
from typing import Literal

import torch
from torch import nn

from remuda.policy.normalisation import CLIP, Moments


class QNetwork(nn.Module):
    """Action values by a multilayer perceptron: float32 [n, features] -> float32 [n, actions].

    With `dueling` the last hidden layer is doubled, one half for the value of the state and one for the advantage of
    each action (Wang et al. 2016, equation 9). Both halves are one matrix product. Weights start as torch draws
    them: orthogonal ones (Saxe et al. 2014) solved CartPole no sooner over eight seeds.
    """

    def __init__(self, features: int, actions: int, hidden: tuple[int, ...], *, dueling: bool) -> None:
        super().__init__()
        self.torso = _layers((features, *hidden[:-1]), nn.ReLU)
        width, before = hidden[-1], (features, *hidden)[-2]
        self.dueling = dueling
        self.streams = _layers((before, 2 * width if dueling else width), nn.ReLU)
        self.advantage = nn.Linear(width, actions)
        self.value = nn.Linear(width, 1) if dueling else None

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Value the actions of each observation."""
        hidden: torch.Tensor = self.streams(self.torso(observations))
        if self.value is None:
            values: torch.Tensor = self.advantage(hidden)
            return values
        of_state, of_actions = hidden.chunk(2, dim=1)
        advantage: torch.Tensor = self.advantage(of_actions)
        value: torch.Tensor = self.value(of_state)
        return value + advantage - advantage.mean(dim=1, keepdim=True)


class ActorCriticNetwork(nn.Module):
    """A policy and a value by two perceptrons beside each other, on normalised observations.

    Weights start orthogonal (Saxe et al. 2014), those of the policy's last layer small, so that it begins close to
    uniform: as good as torch's own on CartPole and Pendulum, six and three seeds, and the field's custom. The running
    moments are part of the network, so that whoever has its state acts as it does.
    """

    def __init__(
        self,
        features: int,
        outputs: int,
        hidden: tuple[int, ...],
        *,
        activation: Literal["tanh", "relu"],
        gaussian: bool,
        normalizes: bool,
    ) -> None:
        super().__init__()
        between = {"tanh": nn.Tanh, "relu": nn.ReLU}[activation]
        self.policy = _perceptron(features, outputs, hidden, between=between, gain=0.01)
        self.value = _perceptron(features, 1, hidden, between=between, gain=1.0)
        self.log_std = nn.Parameter(torch.zeros(outputs)) if gaussian else None
        self.observations = RunningMoments(features)
        self.returns = RunningMoments(1)
        self._normalizes = normalizes

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """What the policy says of observations [n, features] as they come: logits, or means, [n, outputs]."""
        outputs: torch.Tensor = self.policy(self.normalised(observations))
        return outputs

    def normalised(self, observations: torch.Tensor) -> torch.Tensor:
        """Bring observations [n, features] to the scale that both perceptrons are for."""
        if not self._normalizes:
            return observations
        mean, scale = self.observations.mean, (self.observations.variance + Moments.EPSILON).rsqrt()
        return ((observations - mean.float()) * scale.float()).clamp(-CLIP, CLIP)


class RunningMoments(nn.Module):
    """Moments as part of a network's state: float64 buffers, of no row yet."""

    mean: torch.Tensor
    variance: torch.Tensor
    count: torch.Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros(1, dtype=torch.float64))

    def load(self) -> Moments:
        """Copy the moments to the host."""
        mean, variance, count = (buffer.cpu().numpy().copy() for buffer in (self.mean, self.variance, self.count))
        return Moments(mean, variance, float(count[0]))

    def store(self, moments: Moments) -> None:
        """Take over moments of the same size."""
        self.mean.copy_(torch.from_numpy(moments.mean))
        self.variance.copy_(torch.from_numpy(moments.variance))
        self.count.fill_(moments.count)


def _layers(widths: tuple[int, ...], between: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), between()]
    return nn.Sequential(*layers)


def _perceptron(
    features: int, outputs: int, hidden: tuple[int, ...], *, between: type[nn.Module], gain: float
) -> nn.Sequential:
    widths = (features, *hidden)
    network = nn.Sequential(*_layers(widths, between), nn.Linear(widths[-1], outputs))
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    for layer in linear:
        nn.init.orthogonal_(layer.weight, gain if layer is linear[-1] else math.sqrt(2))
        nn.init.zeros_(layer.bias)
    return network
