"""An actor and two critics as one network, and their shapes for those who need no torch to know them."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from remuda.config.algorithms.twin_critics import TwinCriticConfig
from remuda.policy.algorithms.twin_critics.layout import CRITICS, TwinCriticLayout, numbers_of
from remuda.policy.networks.custom_encoder import reads
from remuda.policy.networks.precision import Lowers
from remuda.policy.networks.stacked import StackedPerceptron, StackSlice
from remuda.policy.networks.trunks import lowered
from remuda.policy.spaces import ObservationSpec

Read = tuple[nn.Module | None, int]
"""A module that reads observations, and the number of its features; see `reads`."""


class TwinCriticNetwork(nn.Module):
    """The actor reads observations; the critics read them, too, and with them the action where that is a Box.

    Weights start as torch draws those of nn.Linear, as in the implementation of TD3's authors.
    """

    def __init__(self, layout: TwinCriticLayout, reading: Callable[[], Read], temperature: float | None) -> None:
        """Build the parts.

        Args:
            layout: The layers.
            reading: Makes a module that reads observations, with its features; None: these are the numbers themselves.
                The actor has one, and the critics have one together.
            temperature: The first one, which is then a parameter (its logarithm); None: there is none.
        """
        super().__init__()
        self.log_temperature = None if temperature is None else nn.Parameter(torch.tensor([math.log(temperature)]))
        self.actor = _reading(reading(), lambda features: StackedPerceptron(1, layout.actor(features)))
        self.critics = _reading(reading(), lambda features: StackedPerceptron(CRITICS, layout.critic(features)))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """The actor's outputs for encoded observations [n, …]: [n, outputs]."""
        outputs: torch.Tensor = self.actor(observations).squeeze(0)
        return outputs

    def least_value(self, observations: torch.Tensor, actions: torch.Tensor | None = None) -> torch.Tensor:
        """The smaller of both critics' values of observations [n, …], and of actions [n, k] where the critics read
        those: [n, values]."""
        values = self.critics(observations) if actions is None else values_of(self.critics, observations, actions)
        least: torch.Tensor = values.amin(0)
        return least if actions is None else least.unsqueeze(1)

    def acting(self) -> dict[str, nn.Module]:
        """See remuda.policy.networks.reading: the outputs of the `actor`; the `critic_features`, where a module reads
        observations; and the values of each critic by its features, and the actions that it reads."""
        (of_actor, actor), (of_critics, critics) = _parts(self.actor), _parts(self.critics)
        outputs: dict[str, nn.Module] = {"actor": nn.Sequential(*of_actor, StackSlice(actor, 0))}
        if of_critics:
            outputs["critic_features"] = nn.Sequential(*of_critics)
        return outputs | {f"critic_{index}": StackSlice(critics, index) for index in range(CRITICS)}


class ReadingStack(nn.Module, Lowers):
    """Perceptrons beside each other that read the features which a module makes of observations."""

    def __init__(self, encoder: nn.Module, stack: StackedPerceptron) -> None:
        super().__init__()
        self.encoder, self.stack = encoder, stack

    def forward(self, observations: torch.Tensor, actions: torch.Tensor | None = None) -> torch.Tensor:
        """Observations [n, …], and actions [n, k] beside their features -> [count, n, outputs]."""
        with lowered(self, self.encoder):
            features: torch.Tensor = self.encoder(observations).float()
        outputs: torch.Tensor = self.stack(features if actions is None else torch.cat((features, actions), dim=1))
        return outputs


def values_of(critics: nn.Module, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Each critic's values of the actions, numbers in -1 … 1 [n, k]: [critics, n]."""
    if isinstance(critics, ReadingStack):
        of_actions: torch.Tensor = critics(observations, actions).squeeze(2)
        return of_actions
    values: torch.Tensor = critics(torch.cat((observations, actions), dim=1)).squeeze(2)
    return values


def make_network(
    config: TwinCriticConfig,
    layout: TwinCriticLayout,
    observation: ObservationSpec,
    source_dir: str | None,
    temperature: float | None = None,
) -> TwinCriticNetwork:
    """See remuda.policy.algorithms.dqn.network. `temperature`: the first one, if it is learned."""
    numbers = numbers_of(config, observation)

    def reading() -> Read:
        return reads(config, observation, source_dir) if numbers is None else (None, numbers)

    return TwinCriticNetwork(layout, reading, temperature)


def _reading(read: Read, stack: Callable[[int], StackedPerceptron]) -> StackedPerceptron | ReadingStack:
    encoder, features = read
    return stack(features) if encoder is None else ReadingStack(encoder, stack(features))


def _parts(module: StackedPerceptron | ReadingStack) -> tuple[list[nn.Module], StackedPerceptron]:
    return ([module.encoder], module.stack) if isinstance(module, ReadingStack) else ([], module)
