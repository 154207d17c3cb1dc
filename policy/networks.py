"""The networks that algorithms learn."""

from __future__ import annotations

import itertools
import math

import torch
from torch import nn


class QNetwork(nn.Module):
    """Action values by a multilayer perceptron: float32 [n, features] -> float32 [n, actions].

    With `dueling` the last hidden layer is doubled, one half for the value of the state and one for the advantage of
    each action (Wang et al. 2016, equation 9). Both halves are one matrix product. Weights start orthogonal (Saxe et
    al. 2014), biases at 0: on CartPole that needs less than half the steps of torch's default.
    """

    def __init__(self, features: int, actions: int, hidden: tuple[int, ...], *, dueling: bool) -> None:
        super().__init__()
        self.torso = _relu_layers((features, *hidden[:-1]))
        width, before = hidden[-1], (features, *hidden)[-2]
        self.dueling = dueling
        self.streams = _relu_layers((before, 2 * width if dueling else width))
        self.advantage = nn.Linear(width, actions)
        self.value = nn.Linear(width, 1) if dueling else None
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                before_relu = name.startswith(("torso", "streams"))
                nn.init.orthogonal_(parameter, gain=math.sqrt(2.0) if before_relu else 1.0)

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


def _relu_layers(widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers)
