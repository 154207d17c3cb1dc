"""An actor-critic network as an update rule sees it: forward to outputs, and backward from their gradient."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from remuda.policy.algorithms.actor_critic.networks import RecurrentActorCritic
from remuda.policy.networks.dense import Activation
from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.perceptrons import Perceptrons
from remuda.policy.networks.precision import Products
from remuda.policy.networks.recurrent_networks import RecurrentNetwork
from remuda.policy.networks.torch_networks import ActorCriticNetwork
from remuda.policy.networks.trunks import ConvolutionTrunk, reads_parts


class Outputs(NamedTuple):
    """A network's outputs for n observations, or the gradient of a loss by them."""

    policy: torch.Tensor
    """Logits, or means: float32 [n, outputs]."""
    values: torch.Tensor
    """float32 [n]."""


@dataclass(frozen=True)
class Unrolled:
    """The observations of B segments for a recurrent network, which reads them in order."""

    observations: torch.Tensor
    """[B, T + 1, …]: normalised."""
    state: torch.Tensor
    """float32 [B, state_size]: before the first of each segment."""
    begins: torch.Tensor
    """bool [B, T + 1]: an episode begins with this observation."""
    steps: torch.Tensor | None = None
    """int64 [n]: those of the B * (T + 1) observations whose outputs are wanted; None: all."""

    def __len__(self) -> int:
        """How many observations there are."""
        return self.begins.numel()


Seen = torch.Tensor | Unrolled
"""What outputs are computed of: observations [n, …], each by itself, or segments to unroll."""
Backward = Callable[[Outputs], None]
"""Given a loss's gradient by the outputs, writes that by the parameters.

The logarithm of a Gaussian's standard deviation does not depend on the observation: its gradient belongs to the
distribution, and is written afterwards by the caller.
"""


class ActorCriticOutputs(ABC):
    """Reads the network's parameters and writes their gradient, both where FlatParameters keeps them.

    Observations are normalised.
    """

    def prepared(self, observations: torch.Tensor) -> torch.Tensor:
        """Observations [n, …] in the form in which the other methods read them fastest, [n, …]; they take either."""
        return observations

    @abstractmethod
    def values(self, observations: Seen) -> torch.Tensor:
        """Value observations [n, …], without a backward pass: float32 [n]."""

    @abstractmethod
    def vjp(self, observations: Seen) -> tuple[Outputs, Backward]:
        """The network's outputs for observations [n, …], and the backward pass, to be called before the parameters
        change."""


def actor_critic_outputs(
    network: ActorCriticNetwork | RecurrentActorCritic,
    parameters: FlatParameters,
    activation: Activation,
    products: Products | None = None,
) -> ActorCriticOutputs:
    """Choose the implementation: perceptrons are written out; convolutions, which are slow in any case, and recurrent
    networks use autograd.

    `products` says what is computed in bfloat16; with None nothing is."""
    if isinstance(network, RecurrentNetwork):
        return RecurrentOutputs(network, parameters)
    if network.observations is None:  # it reads images
        return ModuleOutputs(network, parameters, products)
    return PerceptronOutputs(parameters, activation, products)


class ModuleOutputs(ActorCriticOutputs):
    """By the network's own layers and autograd."""

    def __init__(
        self, network: ActorCriticNetwork, parameters: FlatParameters, products: Products | None = None
    ) -> None:
        self._network, self._parameters = network, parameters
        if products is None or reads_parts(network):
            products = Products(parameters.vector.device)
        self._products = products

    def prepared(self, observations: torch.Tensor) -> torch.Tensor:
        """See ActorCriticOutputs."""
        first = next(iter(self._network.trunk or ()), None)
        return first.folded(observations) if isinstance(first, ConvolutionTrunk) else observations

    @torch.no_grad()
    def values(self, observations: Seen) -> torch.Tensor:
        """See ActorCriticOutputs."""
        assert isinstance(observations, torch.Tensor)
        with self._products.of_modules():
            values: torch.Tensor = self._network.value(self._network.features(observations))
        return values.squeeze(1)

    def vjp(self, observations: Seen) -> tuple[Outputs, Backward]:
        """See ActorCriticOutputs."""
        assert isinstance(observations, torch.Tensor)
        with torch.enable_grad(), self._products.of_modules():
            features = self._network.features(observations)
            made = Outputs(self._network.policy(features), self._network.value(features).squeeze(1))

        def backward(gradient: Outputs) -> None:
            self._parameters.gradient.zero_()
            torch.autograd.backward(made, gradient)

        return Outputs(*(output.detach() for output in made)), backward


class RecurrentOutputs(ActorCriticOutputs):
    """Of segments that are unrolled, by autograd."""

    def __init__(self, network: RecurrentActorCritic, parameters: FlatParameters) -> None:
        self._network, self._parameters = network, parameters

    @torch.no_grad()
    def values(self, observations: Seen) -> torch.Tensor:
        """See ActorCriticOutputs."""
        return self._outputs(observations).values

    def vjp(self, observations: Seen) -> tuple[Outputs, Backward]:
        """See ActorCriticOutputs."""
        with torch.enable_grad():
            made = self._outputs(observations)

        def backward(gradient: Outputs) -> None:
            self._parameters.gradient.zero_()
            torch.autograd.backward(made, gradient)

        return Outputs(*(output.detach() for output in made)), backward

    def _outputs(self, seen: Seen) -> Outputs:
        assert isinstance(seen, Unrolled)
        remembered, _ = self._network.unroll(seen.observations, seen.state, seen.begins)
        flat = remembered.flatten(0, 1)
        wanted = flat if seen.steps is None else flat.index_select(0, seen.steps)
        return Outputs(self._network.head.policy(wanted), self._network.head.value(wanted).squeeze(1))


class PerceptronOutputs(ActorCriticOutputs):
    """By perceptrons on the network's parameters: layers that both share, the policy's and the value's."""

    def __init__(self, parameters: FlatParameters, activation: Activation, products: Products | None = None) -> None:
        shared, policy, value = (parameters.layers(part) for part in ("trunk.", "policy.", "value."))
        self._perceptrons = Perceptrons(parameters, activation, shared=shared, heads=[policy, value], products=products)

    def values(self, observations: Seen) -> torch.Tensor:
        """See ActorCriticOutputs."""
        assert isinstance(observations, torch.Tensor)
        return self._perceptrons.head(1, observations).squeeze(1)

    def vjp(self, observations: Seen) -> tuple[Outputs, Backward]:
        """See ActorCriticOutputs."""
        assert isinstance(observations, torch.Tensor)
        (policy, values), backward = self._perceptrons.vjp(observations)
        return Outputs(policy, values.squeeze(1)), lambda by: backward((by.policy, by.values.unsqueeze(1)))
