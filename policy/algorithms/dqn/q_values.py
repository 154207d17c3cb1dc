"""A Q-network as the update rule sees it: values forward, a gradient backward, by autograd or written out."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from remuda.policy.networks.dense import Perceptron, dense_layers
from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.torch_networks import QNetwork


class QValues(ABC):
    """Reads the network's parameters and writes their gradient, both where FlatParameters keeps them."""

    @abstractmethod
    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Value the actions of encoded observations [n, …] and leave it at that: float32 [n, actions]."""

    @abstractmethod
    def forward_to_learn(self, observations: torch.Tensor) -> torch.Tensor:
        """The same, remembering what `backward` needs."""

    def forward_both(self, observations: torch.Tensor, others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both of these: `observations` to learn, and `others`, as many."""
        return self.forward_to_learn(observations), self.forward(others)

    @abstractmethod
    def backward(self, gradient: torch.Tensor) -> None:
        """Given the loss's gradient by the values made last to learn, [n, actions], write that by the parameters."""


def q_values(network: QNetwork, parameters: FlatParameters) -> QValues:
    """Choose how, for good.

    A perceptron is written out: at the sizes of reinforcement learning, torch's modules and its graph take as long as
    the products between them, and an update half as long without. Convolutions are slow themselves; what their graph
    costs does not count.
    """
    if network.trunk is not None:
        return AutogradQValues(network, parameters)
    return DenseQValues(parameters)


class AutogradQValues(QValues):
    """Whatever the network consists of, wherever it is."""

    def __init__(self, network: QNetwork, parameters: FlatParameters) -> None:
        self._network, self._parameters = network, parameters
        self._values: torch.Tensor | None = None

    @torch.no_grad()
    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """See QValues."""
        values: torch.Tensor = self._network(observations)
        return values

    def forward_to_learn(self, observations: torch.Tensor) -> torch.Tensor:
        """See QValues."""
        with torch.enable_grad():
            values: torch.Tensor = self._network(observations)
        self._values = values
        return values.detach()

    def backward(self, gradient: torch.Tensor) -> None:
        """See QValues."""
        assert self._values is not None, "nothing was made to learn"
        self._parameters.gradient.zero_()
        torch.autograd.backward(self._values, gradient)


class DenseQValues(QValues):
    """The layers of a perceptron one by one."""

    def __init__(self, parameters: FlatParameters) -> None:
        layers = dense_layers(parameters)
        self._advantage, self._value = layers.pop("advantage"), layers.pop("value", None)
        self._hidden = Perceptron(list(layers.values()), "relu", activates_last=True)
        self._kept: list[torch.Tensor] = []

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """See QValues."""
        return self._head(self._hidden.forward(observations)[-1])

    def forward_to_learn(self, observations: torch.Tensor) -> torch.Tensor:
        """See QValues."""
        self._kept = self._hidden.forward(observations)
        return self._head(self._kept[-1])

    def forward_both(self, observations: torch.Tensor, others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See QValues. One pass over all rows takes five sixths of two over half of them."""
        n = observations.shape[0]
        outputs = self._hidden.forward(torch.cat((observations, others)))
        self._kept = [output[:n] for output in outputs]
        values = self._head(outputs[-1])
        return values[:n], values[n:]

    def backward(self, gradient: torch.Tensor) -> None:
        """See QValues."""
        self._hidden.backward(self._kept, self._head_backward(self._kept[-1], gradient))

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        if self._value is None:
            return self._advantage.forward(hidden)
        of_state, of_actions = hidden.chunk(2, dim=1)
        advantage = self._advantage.forward(of_actions)
        return advantage.sub_(advantage.mean(dim=1, keepdim=True)).add_(self._value.forward(of_state))

    def _head_backward(self, hidden: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Write the gradient of the last layers, and return that of what they read."""
        if self._value is None:
            self._advantage.backward(hidden, gradient)
            return self._advantage.input_gradient(gradient)
        of_state, of_actions = hidden.chunk(2, dim=1)
        value = gradient.sum(dim=1, keepdim=True)
        advantage = gradient - value / gradient.shape[1]
        self._value.backward(of_state, value)
        self._advantage.backward(of_actions, advantage)
        return torch.cat((self._value.input_gradient(value), self._advantage.input_gradient(advantage)), dim=1)
