"""A Q-network as the update rule sees it: values forward, a gradient backward."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.perceptrons import Outputs, Perceptrons
from remuda.policy.networks.precision import Products
from remuda.policy.networks.torch_networks import QNetwork, dueling_values
from remuda.policy.networks.trunks import reads_parts

Backward = Callable[[torch.Tensor], None]
"""Given a loss's gradient by the values, [n, actions], writes that by the parameters."""


class QValues(ABC):
    """Reads the network's parameters and writes their gradient, both where FlatParameters keeps them."""

    @abstractmethod
    def __call__(self, observations: torch.Tensor) -> torch.Tensor:
        """Value the actions of encoded observations [n, …], without a backward pass: float32 [n, actions]."""

    @abstractmethod
    def vjp(self, observations: torch.Tensor) -> tuple[torch.Tensor, Backward]:
        """The same with the backward pass, to be called before the parameters change."""


def q_values(network: QNetwork, parameters: FlatParameters, products: Products | None = None) -> QValues:
    """Choose the implementation: perceptrons are written out; convolutions, which are slow in any case, use autograd.

    `products` says what is computed in bfloat16; with None nothing is."""
    if network.trunk is not None:
        return ModuleQValues(network, parameters, products)
    return PerceptronQValues(parameters, products, dueling=network.dueling)


class ModuleQValues(QValues):
    """By the network's own layers and autograd."""

    def __init__(self, network: QNetwork, parameters: FlatParameters, products: Products | None = None) -> None:
        self._network, self._parameters = network, parameters
        if products is None or reads_parts(network):
            products = Products(parameters.vector.device)
        self._products = products

    @torch.no_grad()
    def __call__(self, observations: torch.Tensor) -> torch.Tensor:
        """See QValues."""
        with self._products.of_modules():
            values: torch.Tensor = self._network(observations)
        return values

    def vjp(self, observations: torch.Tensor) -> tuple[torch.Tensor, Backward]:
        """See QValues."""
        with torch.enable_grad(), self._products.of_modules():
            values: torch.Tensor = self._network(observations)

        def backward(gradient: torch.Tensor) -> None:
            self._parameters.gradient.zero_()
            torch.autograd.backward(values, gradient)

        return values.detach(), backward


class PerceptronQValues(QValues):
    """By perceptrons on the network's parameters."""

    def __init__(self, parameters: FlatParameters, products: Products | None = None, *, dueling: bool) -> None:
        self._dueling = dueling
        self._perceptrons = Perceptrons(
            parameters,
            "relu",
            shared=parameters.layers("torso.", "streams."),
            heads=[["value"], ["advantage"]] if dueling else [["advantage"]],
            split=dueling,
            products=products,
        )

    def __call__(self, observations: torch.Tensor) -> torch.Tensor:
        """See QValues."""
        return self._values(self._perceptrons.forward(observations))

    def vjp(self, observations: torch.Tensor) -> tuple[torch.Tensor, Backward]:
        """See QValues."""
        outputs, backward = self._perceptrons.vjp(observations)
        return self._values(outputs), lambda gradient: backward(self._by_outputs(gradient))

    def _values(self, outputs: Outputs) -> torch.Tensor:
        return dueling_values(*outputs) if self._dueling else outputs[0]

    def _by_outputs(self, gradient: torch.Tensor) -> Outputs:
        """The gradient by the inputs of `_values`."""
        if not self._dueling:
            return (gradient,)
        by_value = gradient.sum(dim=1, keepdim=True)
        return by_value, gradient - by_value / gradient.shape[1]
