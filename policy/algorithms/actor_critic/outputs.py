"""An actor-critic network as an update rule sees it: forward to outputs, and backward from their gradient."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch

from remuda.policy.networks.dense import Activation, Perceptron, dense_layers
from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.torch_networks import ActorCriticNetwork


class Outputs(NamedTuple):
    """What a network says of n observations, or the gradient of a loss by it."""

    policy: torch.Tensor
    """Logits, or means: float32 [n, outputs]."""
    values: torch.Tensor
    """float32 [n]."""


class ActorCriticOutputs(ABC):
    """Reads the network's parameters and writes their gradient, both where FlatParameters keeps them.

    Observations are normalised. The logarithm of a Gaussian's standard deviation comes of no observation: its gradient
    is left to whoever has the distribution.
    """

    @abstractmethod
    def values(self, observations: torch.Tensor) -> torch.Tensor:
        """Value observations [n, …] and leave it at that: float32 [n]."""

    @abstractmethod
    def forward_to_learn(self, observations: torch.Tensor) -> Outputs:
        """What the network says of observations [n, …], remembering what `backward` needs."""

    @abstractmethod
    def backward(self, gradient: Outputs) -> None:
        """Given the loss's gradient by the outputs made last to learn, write that by the parameters."""


def actor_critic_outputs(
    network: ActorCriticNetwork, parameters: FlatParameters, activation: Activation
) -> ActorCriticOutputs:
    """Choose how, for good: perceptrons are written out, convolutions left to autograd; why, `q_values` says."""
    if network.observations is None:  # it reads images
        return AutogradOutputs(network, parameters)
    return DenseOutputs(parameters, activation)


class AutogradOutputs(ActorCriticOutputs):
    """Whatever the network consists of, wherever it is."""

    def __init__(self, network: ActorCriticNetwork, parameters: FlatParameters) -> None:
        self._network, self._parameters = network, parameters
        self._made: Outputs | None = None

    @torch.no_grad()
    def values(self, observations: torch.Tensor) -> torch.Tensor:
        """See ActorCriticOutputs."""
        values: torch.Tensor = self._network.value(self._network.features(observations))
        return values.squeeze(1)

    def forward_to_learn(self, observations: torch.Tensor) -> Outputs:
        """See ActorCriticOutputs."""
        with torch.enable_grad():
            features = self._network.features(observations)
            self._made = Outputs(self._network.policy(features), self._network.value(features).squeeze(1))
        return Outputs(*(output.detach() for output in self._made))

    def backward(self, gradient: Outputs) -> None:
        """See ActorCriticOutputs."""
        assert self._made is not None, "nothing was made to learn"
        self._parameters.gradient.zero_()
        torch.autograd.backward(self._made, gradient)


class DenseOutputs(ActorCriticOutputs):
    """The layers of perceptrons one by one: those that both share, the policy's and the value's."""

    def __init__(self, parameters: FlatParameters, activation: Activation) -> None:
        layers = dense_layers(parameters)
        shared, policy, value = (
            [layer for name, layer in layers.items() if name.startswith(part)]
            for part in ("trunk.", "policy.", "value.")
        )
        self._shared = Perceptron(shared, activation, activates_last=True) if shared else None
        self._policy, self._value = Perceptron(policy, activation), Perceptron(value, activation)
        self._kept: tuple[list[torch.Tensor], ...] = ()

    def values(self, observations: torch.Tensor) -> torch.Tensor:
        """See ActorCriticOutputs."""
        return self._value.forward(self._features(observations)[-1])[-1].squeeze(1)

    def forward_to_learn(self, observations: torch.Tensor) -> Outputs:
        """See ActorCriticOutputs."""
        features = self._features(observations)
        policy, value = self._policy.forward(features[-1]), self._value.forward(features[-1])
        self._kept = features, policy, value
        return Outputs(policy[-1], value[-1].squeeze(1))

    def backward(self, gradient: Outputs) -> None:
        """See ActorCriticOutputs."""
        features, policy, value = self._kept
        by_policy = self._policy.backward(policy, gradient.policy)
        by_value = self._value.backward(value, gradient.values.unsqueeze(1))
        if self._shared is not None:
            by_features = self._policy.input_gradient(by_policy).add_(self._value.input_gradient(by_value))
            self._shared.backward(features, by_features)

    def _features(self, observations: torch.Tensor) -> list[torch.Tensor]:
        """The observations, and what each shared layer makes of them."""
        return [observations] if self._shared is None else self._shared.forward(observations)
