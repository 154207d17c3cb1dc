"""An actor and two critics as one network, and their shapes for those who need no torch to know them."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math

import torch
from torch import nn

from remuda.policy.algorithms.twin_critics.layout import CRITICS, TwinCriticLayout
from remuda.policy.networks.stacked import StackedPerceptron, StackSlice


class TwinCriticNetwork(nn.Module):
    """The actor reads observations; the critics read them, too, and with them the action where that is a Box.

    Weights start as torch draws those of nn.Linear, as in the implementation of TD3's authors.
    """

    def __init__(self, layout: TwinCriticLayout, temperature: float | None) -> None:
        """`temperature`: the first one, which is then a parameter (its logarithm); None: there is none."""
        super().__init__()
        self.log_temperature = None if temperature is None else nn.Parameter(torch.tensor([math.log(temperature)]))
        self.actor = StackedPerceptron(1, layout.actor)
        self.critics = StackedPerceptron(CRITICS, layout.critic)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """The actor's outputs for encoded observations [n, features]: [n, outputs]."""
        outputs: torch.Tensor = self.actor(observations).squeeze(0)
        return outputs

    def least_value(self, inputs: torch.Tensor) -> torch.Tensor:
        """The smaller of both critics' values for what they read [n, inputs]: [n, values]."""
        values: torch.Tensor = self.critics(inputs).amin(0)
        return values

    def acting(self) -> dict[str, nn.Module]:
        """See remuda.policy.networks.reading: the outputs of the `actor`, and the values of each critic."""
        critics = {f"critic_{index}": StackSlice(self.critics, index) for index in range(CRITICS)}
        return {"actor": StackSlice(self.actor, 0), **critics}


def values_of(critics: nn.Module, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Each critic's values of the actions, numbers in -1 … 1 [n, k]: [critics, n]."""
    values: torch.Tensor = critics(torch.cat((observations, actions), dim=1)).squeeze(2)
    return values
