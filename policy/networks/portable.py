"""A policy as one torch module that needs nothing else: this is traced for model/."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from remuda.policy.networks.normalisation import CLIP
from remuda.policy.networks.torch_networks import ActorCriticNetwork
from remuda.policy.spaces import ActionSpec, ObservationSpec


@dataclass(frozen=True)
class Normalisation:
    """The first step of the module on observations: (observation - mean) / std, within ± clip."""

    mean: list[float]
    std: list[float]
    clip: float
    where: str = "inside the model: give it observations as the environment gives them"


class Portable(nn.Module):
    """What PortablePolicy and RecurrentPortablePolicy have in common.

    Shares its network with the algorithm it comes from. Every method can be traced, for any batch size; whatever
    training changes is a parameter or a buffer, so that a trace can be given what has been learned since.
    """

    output_name: str
    """The name of the output of `forward`: q_values, logits, action_mean."""
    normalisation: Normalisation | None = None
    state_size: int = 0
    """Numbers that are carried from one observation of an episode to the next; 0: none."""

    def __init__(self, observation: ObservationSpec, action: ActionSpec, *, normalises: bool = False) -> None:
        """`normalises`: the network itself normalises observations."""
        super().__init__()
        self._observation, self._action = observation, action
        self._numbers = torch_dtype(observation.numbers(normalised=normalises))
        for name, bounds, unbounded in (("low", action.low, -math.inf), ("high", action.high, math.inf)):
            limits = [unbounded if bound is None else bound for bound in bounds]
            self.register_buffer(name, torch.tensor(limits, dtype=torch_dtype(action.dtype)), persistent=False)
        self.register_buffer("starts", torch.tensor(action.starts, dtype=torch.int64), persistent=False)

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

    @abstractmethod
    def best(self, outputs: torch.Tensor) -> torch.Tensor:
        """The best actions, given the outputs of `forward`."""


class PortablePolicy(Portable):
    """Takes observations [batch, …] as an environment gives them, and gives actions as it takes them."""

    @abstractmethod
    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """The network's outputs: float32 [batch, k]."""

    def act(self, observation: torch.Tensor) -> torch.Tensor:
        """The best actions."""
        return self.best(self.forward(observation))

    @abstractmethod
    def sample(self, observation: torch.Tensor) -> torch.Tensor:
        """Actions with the exploration of the end of the schedule; torch's generator decides."""

    @abstractmethod
    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """The return expected from here on: float32 [batch]."""


class QActing(PortablePolicy):
    """Takes the action of the highest value."""

    output_name = "q_values"

    def __init__(self, observation: ObservationSpec, action: ActionSpec, *, epsilon: float) -> None:
        """`epsilon` is the share of random actions in `sample`."""
        super().__init__(observation, action)
        self._epsilon = epsilon

    def best(self, outputs: torch.Tensor) -> torch.Tensor:
        """The actions of the highest values."""
        return self.to_environment(outputs.argmax(1))

    def sample(self, observation: torch.Tensor) -> torch.Tensor:
        """The best actions by `exploring_values`, and with probability epsilon any."""
        values = self.exploring_values(observation)
        choices = values.shape[1]
        explores = torch.rand_like(values[:, 0]) < self._epsilon
        chance = (torch.rand_like(values[:, 0]) * choices).long().clamp(max=choices - 1)
        return self.to_environment(torch.where(explores, chance, values.argmax(1)))

    def exploring_values(self, observation: torch.Tensor) -> torch.Tensor:
        """The values by which `sample` chooses."""
        values: torch.Tensor = self.forward(observation)
        return values

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """The value of the best action."""
        return self.forward(observation).amax(1)


class PortableQ(QActing):
    """Of a network whose outputs are the values."""

    def __init__(self, network: nn.Module, observation: ObservationSpec, action: ActionSpec, *, epsilon: float) -> None:
        """`epsilon` is the share of random actions in `sample`."""
        super().__init__(observation, action, epsilon=epsilon)
        self.network = network

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """The value of each action."""
        values: torch.Tensor = self.network(self.encoded(observation))
        return values


class PortableActorCritic(PortablePolicy):
    """Takes the likeliest action of a distribution, or draws from it."""

    def __init__(
        self, network: ActorCriticNetwork, observation: ObservationSpec, action: ActionSpec, *, scaled_rewards: bool
    ) -> None:
        """`scaled_rewards`: the network's values are in rewards divided by its running moments."""
        super().__init__(observation, action, normalises=network.normalizes)
        self.network = network
        self.output_name = "action_mean" if action.is_box else "logits"
        scale = float(network.returns.load().scale[0]) if scaled_rewards else 1.0
        self.register_buffer("return_std", torch.tensor(1.0 / scale, dtype=torch.float32), persistent=False)
        if network.normalizes and network.observations is not None:
            moments = network.observations.load()
            self.normalisation = Normalisation(moments.mean.tolist(), (1.0 / moments.scale).tolist(), CLIP)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Logits, or the means of independent normal numbers."""
        outputs: torch.Tensor = self.network(self.encoded(observation))
        return outputs

    def best(self, outputs: torch.Tensor) -> torch.Tensor:
        """The likeliest actions."""
        return self.to_environment(outputs if self._action.is_box else self._each(outputs, _likeliest))

    def sample(self, observation: torch.Tensor) -> torch.Tensor:
        """Actions drawn from the distribution."""
        outputs = self.forward(observation)
        if self.network.log_std is None:
            return self.to_environment(self._each(outputs, _drawn))
        return self.to_environment(outputs + torch.randn_like(outputs) * self.network.log_std.exp())

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """In the environment's own rewards."""
        features = self.network.features(self.network.normalised(self.encoded(observation)))
        values: torch.Tensor = self.network.value(features)
        return values.squeeze(1) * self.get_buffer("return_std")

    def _each(self, logits: torch.Tensor, choose: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Indices [batch] that are chosen by logits; or [batch, components], each by its own."""
        counts = list(self._action.counts)
        if not counts:
            return choose(logits)
        return torch.stack([choose(own) for own in torch.split(logits, counts, dim=1)], dim=1)


def _likeliest(logits: torch.Tensor) -> torch.Tensor:
    return logits.argmax(1)


def _drawn(logits: torch.Tensor) -> torch.Tensor:
    return logits.softmax(1).multinomial(1).squeeze(1)


def torch_dtype(name: str) -> torch.dtype:
    """Torch's type of numpy's name."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype), name
    return dtype
