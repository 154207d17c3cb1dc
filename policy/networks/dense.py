"""Fully connected layers, forward and backward, without modules and without a graph."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from remuda.policy.networks.precision import Lowering, Products, rounding

Activation = Literal["tanh", "relu"]


@dataclass(frozen=True)
class DenseLayer:
    """A fully connected layer and where its gradient goes. Nothing here is recorded: call it under `no_grad`."""

    weight: torch.Tensor
    """[outputs, inputs]."""
    bias: torch.Tensor
    weight_gradient: torch.Tensor
    bias_gradient: torch.Tensor
    transposed: torch.Tensor
    """[inputs, outputs]: the weight."""

    @classmethod
    def of(cls, parameters: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor], name: str) -> DenseLayer:
        """Take a layer out of a network's named parameters; whatever is a view stays one."""
        weight, bias = f"{name}.weight", f"{name}.bias"
        return cls(
            parameters[weight], parameters[bias], gradients[weight], gradients[bias], transposed=parameters[weight].t()
        )

    def backward(self, inputs: torch.Tensor, gradient: torch.Tensor) -> None:
        """Write the gradient of weight and bias, given that of the outputs that `inputs` led to, [n, outputs]; both in
        the precision in which the layer was computed."""
        if inputs.dtype != self.weight_gradient.dtype:
            self.weight_gradient.copy_(torch.mm(gradient.t(), inputs))
        elif 4 * inputs.shape[1] <= gradient.shape[1]:  # products with few columns are slow, those with few rows not
            self.weight_gradient.copy_(torch.mm(inputs.t(), gradient).t())
        else:
            torch.mm(gradient.t(), inputs, out=self.weight_gradient)
        torch.sum(gradient, 0, dtype=self.bias_gradient.dtype, out=self.bias_gradient)


@dataclass(frozen=True)
class Computed:
    """What a perceptron made of its inputs, as its backward pass needs it."""

    outputs: list[torch.Tensor]
    """The inputs [n, inputs], and the outputs of each layer. Between the layers they may be bfloat16."""
    weights: list[torch.Tensor]
    """The weight of each layer as it was computed with: the parameters, or a copy that is rounded."""
    rounded: list[bool]
    """Whether the product of each layer read float32 as bfloat16; see `rounding`."""

    @property
    def last(self) -> torch.Tensor:
        """The outputs of the last layer [n, outputs], or the inputs where there is none."""
        return self.outputs[-1]


class Perceptron:
    """Layers one after the other with an activation between them; or none at all."""

    def __init__(
        self,
        layers: Sequence[DenseLayer],
        activation: Activation,
        *,
        activates_last: bool = False,
        reads_observations: bool = True,
        products: Products | None = None,
    ) -> None:
        """`products` says which layers may be computed in bfloat16; with None all are as precise as their parameters.
        The first is not if it `reads_observations`, nor is the last, unless it is activated."""
        self._layers = tuple(layers)
        self._tanh = activation == "tanh"
        self._activated = len(layers) if activates_last else len(layers) - 1
        self._lowered = range(int(reads_observations), self._activated)
        self._products = products

    def forward(self, inputs: torch.Tensor) -> Computed:
        """Compute all layers for the inputs [n, inputs]."""
        outputs, weights, rounded = [inputs], list[torch.Tensor](), list[bool]()
        for index, layer in enumerate(self._layers):
            if self._lowers(index, inputs.shape[0]):
                made, weight, rounds = self._lowered_product(layer, outputs[-1])
            else:
                weight, rounds = layer.weight, False
                made = torch.addmm(layer.bias, _as(weight, outputs[-1]), layer.transposed)
            weights.append(weight)
            rounded.append(rounds)
            if index < self._activated:
                made = _tanh_(_as(layer.weight, made)) if self._tanh else made.relu_()
            outputs.append(made)
        return Computed(outputs, weights, rounded)

    def _lowered_product(self, layer: DenseLayer, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """What a layer gives in bfloat16, the weight that it was computed with, and whether float32 was rounded."""
        assert self._products is not None
        rounds = self._products.lowering is not Lowering.COPIED
        number = layer.weight.dtype if rounds else torch.bfloat16
        with rounding(rounds) as read:
            weight = read(layer.weight.to(number))
            return torch.addmm(layer.bias.to(number), read(inputs.to(number)), weight.t()), weight, rounds

    def backward(self, computed: Computed, gradient: torch.Tensor, *, to_inputs: bool) -> torch.Tensor:
        """Write the gradient of every layer, given what `forward` returned and the gradient of its last outputs.

        Returns that of the inputs [n, inputs], if it is asked for; it may be bfloat16. `gradient` is overwritten where
        the last layer is activated.
        """
        for index in reversed(range(len(self._layers))):
            layer, weight = self._layers[index], computed.weights[index]
            if index < self._activated:
                gradient = self._before_activation(computed.outputs[index + 1], gradient)
            inputs, gradient = _as(weight, computed.outputs[index]), _as(weight, gradient)
            goes_on = index > 0 or to_inputs
            if computed.rounded[index]:
                with rounding(True) as read:
                    gradient = _through(layer, weight, read(inputs), read(gradient), goes_on=goes_on)
            else:
                gradient = _through(layer, weight, inputs, gradient, goes_on=goes_on)
        return gradient

    def _lowers(self, index: int, rows: int) -> bool:
        if self._products is None or index not in self._lowered:
            return False
        outputs, inputs = self._layers[index].weight.shape
        return self._products.lowers(rows, inputs, outputs)

    def _before_activation(self, outputs: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of an activation's inputs, in place of that of its outputs."""
        gradient = _as(outputs, gradient)
        if self._tanh:
            torch.ops.aten.tanh_backward.grad_input(gradient, outputs, grad_input=gradient)
        else:
            torch.ops.aten.threshold_backward.grad_input(gradient, outputs, 0.0, grad_input=gradient)
        return gradient


def _as(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The values in the precision of `like`. Most have it; asking torch to convert them takes several times as long as
    to look."""
    return values if values.dtype is like.dtype else values.to(like.dtype)


def _through(
    layer: DenseLayer, weight: torch.Tensor, inputs: torch.Tensor, gradient: torch.Tensor, *, goes_on: bool
) -> torch.Tensor:
    """Write the gradient of a layer; returns that of its inputs if the way back `goes_on`, else the one given."""
    layer.backward(inputs, gradient)
    return gradient @ weight if goes_on else gradient


def _tanh_(values: torch.Tensor) -> torch.Tensor:
    """Take the hyperbolic tangent in place, of float32 or float64. torch's is MKL's, which on an AMD processor takes
    ten times as long as numpy's: for two layers of 64 and a batch of 256, as long as the matrix products."""
    if values.device.type == "cpu":
        array = values.numpy()
        np.tanh(array, out=array)
    else:
        values.tanh_()
    return values
