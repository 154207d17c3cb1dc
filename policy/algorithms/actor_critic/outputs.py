"""An actor-critic network as an update rule sees it: forward to outputs, and backward from their gradient."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch

from remuda.policy.networks.dense import Activation
from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.perceptrons import Perceptrons
from remuda.policy.networks.precision import Products
from remuda.policy.networks.torch_networks import ActorCriticNetwork


class Outputs(NamedTuple):
    """A network's outputs for n observations, or the gradient of a loss by them."""

    policy: torch.Tensor
    """Logits, or means: float32 [n, outputs]."""
    values: torch.Tensor
    """float32 [n]."""


Backward = Callable[[Outputs], None]
"""Given a loss's gradient by the outputs, writes that by the parameters.

The logarithm of a Gaussian's standard deviation does not depend on the observation: its gradient belongs to the
distribution, and is written afterwards by the caller.
"""


class ActorCriticOutputs(ABC):
    """Reads the network's parameters and writes their gradient, both where FlatParameters keeps them.

    Observations are normalised.
    """

    @abstractmethod
    def values(self, observations: torch.Tensor) -> torch.Tensor:
        """Value observations [n, …], without a backward pass: float32 [n]."""

    @abstractmethod
    def vjp(self, observations: torch.Tensor) -> tuple[Outputs, Backward]:
        """The network's outputs for observations [n, …], and the backward pass, to be called before the parameters
        change."""


def actor_critic_outputs(
    network: ActorCriticNetwork, parameters: FlatParameters, activation: Activation, products: Products | None = None
) -> ActorCriticOutputs:
    """Choose the implementation: perceptrons are written out; convolutions, which are slow in any case, use autograd.

    `products` says what is computed in bfloat16; with None nothing is."""
    if network.observations is None:  # it reads images
        return ModuleOutputs(network, parameters, products)
    return PerceptronOutputs(parameters, activation, products)


class ModuleOutputs(ActorCriticOutputs):
    """By the network's own layers and autograd."""

    def __init__(
        self, network: ActorCriticNetwork, parameters: FlatParameters, products: Products | None = None
    ) -> None:
        self._network, self._parameters = network, parameters
        self._products = products or Products(parameters.vector.device)

    @torch.no_grad()
    def values(self, observations: torch.Tensor) -> torch.Tensor:
        """See ActorCriticOutputs."""
        with self._products.of_modules():
            values: torch.Tensor = self._network.value(self._network.features(observations))
        return values.squeeze(1)

    def vjp(self, observations: torch.Tensor) -> tuple[Outputs, Backward]:
        """See ActorCriticOutputs."""
        with torch.enable_grad(), self._products.of_modules():
            features = self._network.features(observations)
            made = Outputs(self._network.policy(features), self._network.value(features).squeeze(1))

        def backward(gradient: Outputs) -> None:
            self._parameters.gradient.zero_()
            torch.autograd.backward(made, gradient)

        return Outputs(*(output.detach() for output in made)), backward


class PerceptronOutputs(ActorCriticOutputs):
    """By perceptrons on the network's parameters: layers that both share, the policy's and the value's."""

    def __init__(self, parameters: FlatParameters, activation: Activation, products: Products | None = None) -> None:
        shared, policy, value = (parameters.layers(part) for part in ("trunk.", "policy.", "value."))
        self._perceptrons = Perceptrons(parameters, activation, shared=shared, heads=[policy, value], products=products)

    def values(self, observations: torch.Tensor) -> torch.Tensor:
        """See ActorCriticOutputs."""
        return self._perceptrons.head(1, observations).squeeze(1)

    def vjp(self, observations: torch.Tensor) -> tuple[Outputs, Backward]:
        """See ActorCriticOutputs."""
        (policy, values), backward = self._perceptrons.vjp(observations)
        return Outputs(policy, values.squeeze(1)), lambda by: backward((by.policy, by.values.unsqueeze(1)))
