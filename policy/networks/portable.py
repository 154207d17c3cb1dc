"""A policy as one self-contained torch module, for model/ and for exports."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from remuda.policy.networks.normalisation import CLIP
from remuda.policy.networks.recurrent_networks import RecurrentNetwork
from remuda.policy.networks.torch_networks import ActorCriticNetwork, RewardScale, RunningMoments
from remuda.policy.spaces import ActionSpec, ObservationSpec, OutputName

Answer = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
"""Output of a method; with the next states, for a recurrent policy."""


@dataclass(frozen=True)
class Normalisation:
    """The first step of the module on observations: (observation - mean) / std, within ± clip."""

    mean: list[float]
    std: list[float]
    clip: float
    where: str = "inside the model: give it observations as the environment gives them"


class Portable(nn.Module):
    """Maps observations [batch, …] of the environment to actions for the environment. With a RecurrentNetwork it also
    takes states [batch, state_size], 0 at the begin of an episode, and returns the states for the next observations.

    Shares its network with the algorithm. Every method can be traced, for any batch size. All learned values are
    parameters or buffers, so a trace can be updated. The output name determines how outputs become actions; a
    subclass handles further differences of its algorithm.
    """

    state_size: int = 0
    """Numbers carried between the observations of an episode; 0: none."""
    reward_std: torch.Tensor | None

    def __init__(
        self,
        network: nn.Module,
        observation: ObservationSpec,
        action: ActionSpec,
        output_name: OutputName,
        *,
        exploration: float = 0.0,
        moments: RunningMoments | None = None,
        rewards: RewardScale | None = None,
    ) -> None:
        """Make a policy of a network.

        Args:
            network: maps encoded observations [batch, …], or the outputs of a recurrent core, to outputs [batch, k].
            output_name: meaning of the outputs.
            exploration: share of random actions of `sample` for `q_values`.
            moments: of observations.
            rewards: scale of the values.
        """
        super().__init__()
        self.network = network
        self.output_name: OutputName = output_name
        self._observation, self._action, self.exploration = observation, action, exploration
        self.normalisation: Normalisation | None = None
        if isinstance(network, RecurrentNetwork):
            self.state_size, moments = network.core.state_size, network.encoder.observations
        if moments is not None:
            loaded = moments.load()
            self.normalisation = Normalisation(loaded.mean.tolist(), (1.0 / loaded.scale).tolist(), CLIP)
        self._numbers = torch_dtype(observation.numbers(normalised=moments is not None))
        for name, bounds, unbounded in (("low", action.low, -math.inf), ("high", action.high, math.inf)):
            limits = [unbounded if bound is None else bound for bound in bounds]
            self.register_buffer(name, torch.tensor(limits, dtype=torch_dtype(action.dtype)), persistent=False)
        std = None if rewards is None else torch.tensor(rewards.std, dtype=torch.float32)
        self.register_buffer("reward_std", std, persistent=False)
        self.register_buffer("starts", torch.tensor(action.starts, dtype=torch.int64), persistent=False)

    @property
    def head(self) -> nn.Module:
        """The module that computes the outputs: the network, or the head of a recurrent network."""
        return cast("nn.Module", self.network.head) if isinstance(self.network, RecurrentNetwork) else self.network

    # --- the methods of model/

    def forward(self, observation: torch.Tensor, state: torch.Tensor | None = None) -> Answer:
        """The network's outputs: float32 [batch, k]."""
        seen, after = self.seen(observation, state)
        return _with(self.outputs(seen), after)

    def act(self, observation: torch.Tensor, state: torch.Tensor | None = None) -> Answer:
        """The best actions."""
        seen, after = self.seen(observation, state)
        return _with(self.best(self.outputs(seen)), after)

    def sample(self, observation: torch.Tensor, state: torch.Tensor | None = None) -> Answer:
        """Actions with the exploration of the end of the schedule; torch's generator decides."""
        seen, after = self.seen(observation, state)
        return _with(self.drawn(self.exploring(seen)), after)

    def value(self, observation: torch.Tensor, state: torch.Tensor | None = None) -> Answer:
        """The return expected from here on, in the environment's own rewards: float32 [batch]."""
        seen, after = self.seen(observation, state)
        return _with(self.values(seen), after)

    # --- what they are made of

    def seen(self, observation: torch.Tensor, state: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Inputs of the head, and the next states."""
        encoded = self.encoded(observation)
        if not isinstance(self.network, RecurrentNetwork):
            return encoded, None
        encoder = self.network.encoder
        remembered, after = self.network.core(encoder(encoder.normalised(encoded)), state)
        return remembered, after

    def outputs(self, seen: torch.Tensor) -> torch.Tensor:
        """The outputs [batch, k] of the head; action values are in the environment's own rewards."""
        outputs: torch.Tensor = self.head(seen)
        return self.in_own_rewards(outputs) if self.output_name == "q_values" else outputs

    def exploring(self, seen: torch.Tensor) -> torch.Tensor:
        """Outputs for `sample`."""
        return self.outputs(seen)

    def drop_average(self) -> None:
        """Remove an average of weights, if the network has one: the best actions are those of the newest weights."""

    def values(self, seen: torch.Tensor) -> torch.Tensor:
        """Expected returns [batch]: for action values, those of the best action."""
        return self.outputs(seen).amax(1)

    def in_own_rewards(self, values: torch.Tensor) -> torch.Tensor:
        """Values in the environment's own rewards, given values in scaled rewards."""
        return values if self.reward_std is None else values * self.reward_std

    def best(self, outputs: torch.Tensor) -> torch.Tensor:
        return self.to_environment(outputs if self._action.is_box else self._each(outputs, _likeliest))

    def drawn(self, outputs: torch.Tensor) -> torch.Tensor:
        """Actions with exploration, given the outputs."""
        if self.output_name == "q_values":
            return self.to_environment(self._epsilon_greedy(outputs))
        if self.output_name == "logits":
            return self.to_environment(self._each(outputs, _drawn))
        assert isinstance(self.head, ActorCriticNetwork)
        assert self.head.log_std is not None
        return self.to_environment(outputs + torch.randn_like(outputs) * self.head.log_std.exp())

    def encoded(self, observation: torch.Tensor) -> torch.Tensor:
        """The same as ObservationSpec.encode."""
        spec = self._observation
        if spec.parts:
            return observation
        if spec.is_image:
            if len(spec.shape) == 3:
                return observation
            return observation.permute(0, *(axis + 1 for axis in spec.image_axes)).reshape(-1, *spec.image_shape)
        if spec.n is None:
            return observation.flatten(1).to(self._numbers) * spec.scale
        return nn.functional.one_hot(observation.long() - spec.start, spec.n).float()

    def to_environment(self, actions: torch.Tensor) -> torch.Tensor:
        """The same as ActionSpec.to_environment."""
        spec = self._action
        dtype = torch_dtype(spec.dtype)
        if spec.n is not None:
            return (actions + spec.start).to(dtype)
        if spec.counts:
            return (actions + self.get_buffer("starts")).to(dtype).reshape(-1, *spec.shape)
        return actions.to(dtype).clamp(self.get_buffer("low"), self.get_buffer("high")).reshape(-1, *spec.shape)

    def _epsilon_greedy(self, values: torch.Tensor) -> torch.Tensor:
        """The highest of the values, and with a probability any."""
        choices = values.shape[1]
        explores = torch.rand_like(values[:, 0]) < self.exploration
        chance = (torch.rand_like(values[:, 0]) * choices).long().clamp(max=choices - 1)
        return torch.where(explores, chance, values.argmax(1))

    def _each(self, outputs: torch.Tensor, choose: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Choose indices [batch] by outputs, or [batch, components] by the outputs of the components."""
        counts = list(self._action.counts)
        if not counts:
            return choose(outputs)
        return torch.stack([choose(own) for own in torch.split(outputs, counts, dim=1)], dim=1)


class PortableActorCritic(Portable):
    """Takes the likeliest action of a distribution, or draws from it."""

    def __init__(
        self, network: nn.Module, observation: ObservationSpec, action: ActionSpec, rewards: RewardScale | None
    ) -> None:
        """`network`: an ActorCriticNetwork, or a recurrent network with such a head. `rewards`: scale of the values."""
        moments = network.observations if isinstance(network, ActorCriticNetwork) and network.normalizes else None
        name: OutputName = "action_mean" if action.is_box else "logits"
        super().__init__(network, observation, action, name, moments=moments, rewards=rewards)

    def values(self, seen: torch.Tensor) -> torch.Tensor:
        head = self.head
        assert isinstance(head, ActorCriticNetwork)
        values: torch.Tensor = head.value(head.features(head.normalised(seen)))
        return self.in_own_rewards(values.squeeze(1))


def _with(answer: torch.Tensor, after: torch.Tensor | None) -> Answer:
    return answer if after is None else (answer, after)


def _likeliest(outputs: torch.Tensor) -> torch.Tensor:
    return outputs.argmax(1)


def _drawn(logits: torch.Tensor) -> torch.Tensor:
    return logits.softmax(1).multinomial(1).squeeze(1)


def torch_dtype(name: str) -> torch.dtype:
    """Torch's type of numpy's name."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype), name
    return dtype
