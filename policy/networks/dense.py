"""Fully connected layers, forward and backward, without modules and without a graph."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

Activation = Literal["tanh", "relu"]


@dataclass(frozen=True)
class DenseLayer:
    """A fully connected layer and where its gradient goes. Nothing here is recorded: call it under `no_grad`."""

    weight: torch.Tensor
    """[outputs, inputs]."""
    bias: torch.Tensor
    weight_gradient: torch.Tensor
    bias_gradient: torch.Tensor

    @classmethod
    def of(cls, parameters: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor], name: str) -> DenseLayer:
        """Take a layer out of a network's named parameters; whatever is a view stays one."""
        weight, bias = f"{name}.weight", f"{name}.bias"
        return cls(parameters[weight], parameters[bias], gradients[weight], gradients[bias])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[n, inputs] -> [n, outputs]."""
        return torch.addmm(self.bias, inputs, self.weight.t())

    def backward(self, inputs: torch.Tensor, gradient: torch.Tensor) -> None:
        """Write the gradient of weight and bias, given that of the outputs that `inputs` led to, [n, outputs]."""
        if 4 * inputs.shape[1] <= gradient.shape[1]:  # products with few columns are slow, those with few rows are not
            self.weight_gradient.copy_(torch.mm(inputs.t(), gradient).t())
        else:
            torch.mm(gradient.t(), inputs, out=self.weight_gradient)
        torch.sum(gradient, 0, out=self.bias_gradient)

    def input_gradient(self, gradient: torch.Tensor) -> torch.Tensor:
        """From the gradient of the outputs [n, outputs] to that of the inputs [n, inputs]."""
        return gradient @ self.weight


class Perceptron:
    """Layers one after the other with an activation between them; or none at all."""

    def __init__(self, layers: Sequence[DenseLayer], activation: Activation, *, activates_last: bool = False) -> None:
        self._layers = tuple(layers)
        self._tanh = activation == "tanh"
        self._activated = len(layers) if activates_last else len(layers) - 1

    def forward(self, inputs: torch.Tensor) -> list[torch.Tensor]:
        """The inputs [n, inputs], and the outputs of each layer: the last are [n, outputs]."""
        outputs = [inputs]
        for index, layer in enumerate(self._layers):
            made = layer.forward(outputs[-1])
            if index < self._activated:
                _tanh_(made) if self._tanh else made.relu_()
            outputs.append(made)
        return outputs

    def backward(self, outputs: Sequence[torch.Tensor], gradient: torch.Tensor, *, to_inputs: bool) -> torch.Tensor:
        """Write the gradient of every layer, given what `forward` returned and the gradient of the last of it.

        Returns that of the inputs [n, inputs], if it is asked for. `gradient` is overwritten where the last layer is
        activated.
        """
        for index in reversed(range(len(self._layers))):
            layer = self._layers[index]
            if index < self._activated:
                gradient = self._before_activation(outputs[index + 1], gradient)
            layer.backward(outputs[index], gradient)
            if index > 0 or to_inputs:
                gradient = layer.input_gradient(gradient)
        return gradient

    def _before_activation(self, outputs: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of an activation's inputs, in place of that of its outputs."""
        if self._tanh:
            return gradient.addcmul_(gradient * outputs, outputs, value=-1.0)  # the slope is 1 - tanh²
        return gradient.mul_(outputs.sign())


def _tanh_(values: torch.Tensor) -> None:
    """Take the hyperbolic tangent in place. torch's is MKL's, which on an AMD processor takes ten times as long as
    numpy's: for two layers of 64 and a batch of 256, as long as the matrix products."""
    if values.device.type == "cpu":
        array = values.numpy()
        np.tanh(array, out=array)
    else:
        values.tanh_()
