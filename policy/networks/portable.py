"""A policy as one torch module that needs nothing else: this is traced for model/, and exported."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from remuda.policy.networks.normalisation import CLIP
from remuda.policy.networks.recurrent_networks import RecurrentNetwork
from remuda.policy.networks.torch_networks import ActorCriticNetwork, RunningMoments
from remuda.policy.spaces import ActionSpec, ObservationSpec, OutputName

Answer = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
"""What a method says, together with the states to carry on where the policy is recurrent."""


@dataclass(frozen=True)
class Normalisation:
    """The first step of the module on observations: (observation - mean) / std, within ± clip."""

    mean: list[float]
    std: list[float]
    clip: float
    where: str = "inside the model: give it observations as the environment gives them"


class Portable(nn.Module):
    """Takes observations [batch, …] as an environment gives them, and gives actions as it takes them. That of a
    RecurrentNetwork takes states [batch, state_size], too, 0 where an episode begins, and gives the states to take with
    the next observations.

    Shares its network with the algorithm it comes from. Every method can be traced, for any batch size; whatever
    training changes is a parameter or a buffer, so that a trace can be given what has been learned since. The outputs'
    name says how they become actions; a subclass says what else is different in its algorithm.
    """

    state_size: int = 0
    """Numbers that are carried from one observation of an episode to the next; 0: none."""

    def __init__(
        self,
        network: nn.Module,
        observation: ObservationSpec,
        action: ActionSpec,
        output_name: OutputName,
        *,
        exploration: float = 0.0,
        moments: RunningMoments | None = None,
    ) -> None:
        """Make a policy of a network.

        Args:
            network: maps encoded observations [batch, …], or what its core remembers, to outputs [batch, k].
            observation: what environments give.
            action: what they take.
            output_name: what the outputs are.
            exploration: how much `sample` explores: the share of random actions of `q_values`.
            moments: by which the network itself normalises observations.
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
        self.register_buffer("starts", torch.tensor(action.starts, dtype=torch.int64), persistent=False)

    @property
    def head(self) -> nn.Module:
        """What gives the outputs: the network, or what reads a recurrent one's core."""
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
        """The return expected from here on: float32 [batch]."""
        seen, after = self.seen(observation, state)
        return _with(self.values(seen), after)

    # --- what they are made of

    def seen(self, observation: torch.Tensor, state: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What the head reads, and the states to carry on."""
        encoded = self.encoded(observation)
        if not isinstance(self.network, RecurrentNetwork):
            return encoded, None
        encoder = self.network.encoder
        remembered, after = self.network.core(encoder(encoder.normalised(encoded)), state)
        return remembered, after

    def outputs(self, seen: torch.Tensor) -> torch.Tensor:
        """The outputs [batch, k] of the head."""
        outputs: torch.Tensor = self.head(seen)
        return outputs

    def exploring(self, seen: torch.Tensor) -> torch.Tensor:
        """The outputs by which `sample` draws."""
        return self.outputs(seen)

    def values(self, seen: torch.Tensor) -> torch.Tensor:
        """The returns [batch] expected from here on: of action values, that of the best."""
        return self.outputs(seen).amax(1)

    def best(self, outputs: torch.Tensor) -> torch.Tensor:
        """The best actions, given the outputs."""
        return self.to_environment(outputs if self._action.is_box else self._each(outputs, _likeliest))

    def drawn(self, outputs: torch.Tensor) -> torch.Tensor:
        """Actions that explore, given the outputs."""
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
        """Indices [batch] that are chosen by outputs; or [batch, components], each by its own."""
        counts = list(self._action.counts)
        if not counts:
            return choose(outputs)
        return torch.stack([choose(own) for own in torch.split(outputs, counts, dim=1)], dim=1)


class PortableActorCritic(Portable):
    """Takes the likeliest action of a distribution, or draws from it."""

    def __init__(
        self, network: nn.Module, observation: ObservationSpec, action: ActionSpec, *, scaled_rewards: bool
    ) -> None:
        """`network`: an ActorCriticNetwork, or a recurrent one whose head is one. `scaled_rewards`: its values are in
        rewards divided by its running moments."""
        moments = network.observations if isinstance(network, ActorCriticNetwork) and network.normalizes else None
        name: OutputName = "action_mean" if action.is_box else "logits"
        super().__init__(network, observation, action, name, moments=moments)
        assert isinstance(self.head, ActorCriticNetwork)
        scale = float(self.head.returns.load().scale[0]) if scaled_rewards else 1.0
        self.register_buffer("return_std", torch.tensor(1.0 / scale, dtype=torch.float32), persistent=False)

    def values(self, seen: torch.Tensor) -> torch.Tensor:
        """In the environment's own rewards."""
        head = self.head
        assert isinstance(head, ActorCriticNetwork)
        values: torch.Tensor = head.value(head.features(head.normalised(seen)))
        return values.squeeze(1) * self.get_buffer("return_std")


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
