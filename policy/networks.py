"""The networks that algorithms learn."""

from __future__ import annotations

import itertools

import torch
from torch import nn


class QNetwork(nn.Module):
    """Action values by a multilayer perceptron: float32 [n, features] -> float32 [n, actions].

    With `dueling` the last hidden layer is doubled, one half for the value of the state and one for the advantage of
    each action (Wang et al. 2016, equation 9). Both halves are one matrix product. Weights start as torch draws
    them: orthogonal ones (Saxe et al. 2014) solved CartPole no sooner over eight seeds.
    """

    def __init__(self, features: int, actions: int, hidden: tuple[int, ...], *, dueling: bool) -> None:
        super().__init__()
        self.torso = _relu_layers((features, *hidden[:-1]))
        width, before = hidden[-1], (features, *hidden)[-2]
        self.dueling = dueling
        self.streams = _relu_layers((before, 2 * width if dueling else width))
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


def _relu_layers(widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers)
