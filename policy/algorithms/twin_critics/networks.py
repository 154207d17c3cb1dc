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
from remuda.policy.networks.custom_network import ActorAndCritic, require_separate
from remuda.policy.networks.precision import Lowers
from remuda.policy.networks.stacked import Beside, StackedPerceptron, StackSlice
from remuda.policy.networks.trunks import lowered
from remuda.policy.spaces import ActionSpec, ObservationSpec

Stack = StackedPerceptron | Beside
"""Modules of one shape beside each other: one actor, or the critics."""


class TwinCriticNetwork(nn.Module):
    """The actor reads observations; the critics read them, too, and with them the action where that is a Box."""

    def __init__(self, actor: Stack | ReadingStack, critics: Stack | ReadingStack, temperature: float | None) -> None:
        """The logarithm of a `temperature` is learned, and begins there. None learns no temperature."""
        super().__init__()
        self.log_temperature = None if temperature is None else nn.Parameter(torch.tensor([math.log(temperature)]))
        self.actor, self.critics = actor, critics

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
        outputs: dict[str, nn.Module] = {"actor": nn.Sequential(*of_actor, _one(actor, 0))}
        if of_critics:
            outputs["critic_features"] = nn.Sequential(*of_critics)
        return outputs | {f"critic_{index}": _one(critics, index) for index in range(CRITICS)}


class ReadingStack(nn.Module, Lowers):
    """Modules beside each other that read the features which another one makes of observations."""

    def __init__(self, encoder: nn.Module, stack: Stack) -> None:
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
    action: ActionSpec,
    source_dir: str | None,
    temperature: float | None = None,
) -> TwinCriticNetwork:
    """See remuda.policy.algorithms.dqn.network. `temperature`: the first one, if it is learned.

    Actor and critics each have an encoder, where one reads observations. Weights start as torch draws those of
    nn.Linear, as in the implementation of TD3's authors, and those of a user's network as the user draws them.
    """
    if config.network is not None:
        return TwinCriticNetwork(*_own(config, layout, observation, action, source_dir), temperature)
    numbers = numbers_of(config, observation)

    def perceptron(count: int, widths: Callable[[int], tuple[int, ...]]) -> StackedPerceptron | ReadingStack:
        encoder, features = reads(config, observation, source_dir) if numbers is None else (None, numbers)
        stack = StackedPerceptron(count, widths(features))
        return stack if encoder is None else ReadingStack(encoder, stack)

    return TwinCriticNetwork(perceptron(1, layout.actor), perceptron(CRITICS, layout.critic), temperature)


def _own(
    config: TwinCriticConfig,
    layout: TwinCriticLayout,
    observation: ObservationSpec,
    action: ActionSpec,
    source_dir: str | None,
) -> tuple[ReadingStack, ReadingStack]:
    """Actor and critics of the user's network, each by a call of its own. The critics read the encoder of the first."""
    made = [
        ActorAndCritic.made(
            config,
            observation,
            action,
            source_dir,
            outputs=layout.actor_outputs,
            action_numbers=layout.action_numbers,
            values=layout.values,
        )
        for _ in range(1 + CRITICS)
    ]
    require_separate(config, made)
    actor, *critics = made
    of_critics = ReadingStack(critics[0].encoder, Beside(one.critic for one in critics))
    return ReadingStack(actor.encoder, Beside([actor.actor])), of_critics


def _one(stack: Stack, index: int) -> nn.Module:
    return StackSlice(stack, index) if isinstance(stack, StackedPerceptron) else stack[index]


def _parts(module: Stack | ReadingStack) -> tuple[list[nn.Module], Stack]:
    return ([module.encoder], module.stack) if isinstance(module, ReadingStack) else ([], module)
