"""A Q-network as the update rule sees it: values forward, a gradient backward, by autograd or written out."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch

from remuda.policy.dense import DenseLayer, Floats, relu, relu_input_gradient
from remuda.policy.flat_parameters import FlatParameters
from remuda.policy.networks import QNetwork


class QValues(ABC):
    """Reads the network's parameters and writes their gradient, both where FlatParameters keeps them."""

    @abstractmethod
    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Value the actions of encoded observations [n, …] and leave it at that: float32 [n, actions]."""

    @abstractmethod
    def forward_to_learn(self, observations: torch.Tensor) -> torch.Tensor:
        """The same, remembering what `backward` needs."""

    @abstractmethod
    def backward(self, gradient: torch.Tensor) -> None:
        """Given the loss's gradient by the values made last to learn, [n, actions], write that by the parameters."""


def q_values(network: QNetwork, parameters: FlatParameters) -> QValues:
    """Choose how, for good.

    A perceptron on the CPU is written out: at the sizes of reinforcement learning, torch's modules and its graph take
    longer than the products between them, and an update half as long without. Convolutions keep torch's kernels, which
    plain arrays do not match, and other devices have nothing else.
    """
    if network.trunk is not None or parameters.vector.device.type != "cpu":
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
    """The layers of a perceptron one by one, in arrays that share the parameters' memory."""

    def __init__(self, parameters: FlatParameters) -> None:
        weights, gradients = (
            {name: view.numpy() for name, view in parameters.by_name(vector).items()}
            for vector in (parameters.vector.detach(), parameters.gradient)
        )
        names = dict.fromkeys(name.rpartition(".")[0] for name in weights)
        layers = {name: DenseLayer.of(weights, gradients, name) for name in names}
        self._advantage, self._value = layers.pop("advantage"), layers.pop("value", None)
        self._hidden = tuple(layers.values())
        actions = len(self._advantage.bias)
        self._less_mean: Floats = (np.eye(actions) - 1.0 / actions).astype(np.float32)
        self._kept: list[Floats] = []

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """See QValues."""
        return torch.from_numpy(self._head(self._layers(observations)[-1]))

    def forward_to_learn(self, observations: torch.Tensor) -> torch.Tensor:
        """See QValues."""
        self._kept = self._layers(observations)
        return torch.from_numpy(self._head(self._kept[-1]))

    def backward(self, gradient: torch.Tensor) -> None:
        """See QValues."""
        *inputs, last = self._kept
        of_outputs = self._head_backward(last, gradient.numpy())
        for index in reversed(range(len(self._hidden))):
            layer = self._hidden[index]
            of_outputs = relu_input_gradient(self._kept[index + 1], of_outputs)
            layer.backward(inputs[index], of_outputs)
            if index > 0:
                of_outputs = layer.input_gradient(of_outputs)

    def _layers(self, observations: torch.Tensor) -> list[Floats]:
        """The observations, and what each hidden layer makes of them."""
        outputs: list[Floats] = [observations.numpy()]
        for layer in self._hidden:
            outputs.append(relu(layer.forward(outputs[-1])))
        return outputs

    @staticmethod
    def _streams(hidden: Floats) -> tuple[Floats, Floats]:
        width = hidden.shape[1] // 2
        return hidden[:, :width], hidden[:, width:]

    def _head(self, hidden: Floats) -> Floats:
        if self._value is None:
            return self._advantage.forward(hidden)
        of_state, of_actions = self._streams(hidden)
        values: Floats = self._advantage.forward(of_actions) @ self._less_mean
        values += self._value.forward(of_state)
        return values

    def _head_backward(self, hidden: Floats, gradient: Floats) -> Floats:
        """Write the gradient of the last layers, and return that of what they read."""
        if self._value is None:
            self._advantage.backward(hidden, gradient)
            return self._advantage.input_gradient(gradient)
        of_state, of_actions = self._streams(hidden)
        value = np.add.reduce(gradient, axis=1, keepdims=True)
        advantage: Floats = gradient @ self._less_mean
        self._value.backward(of_state, value)
        self._advantage.backward(of_actions, advantage)
        return np.concatenate((self._value.input_gradient(value), self._advantage.input_gradient(advantage)), axis=1)
