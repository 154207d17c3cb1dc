"""Fully connected layers in plain arrays, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class DenseLayer:
    """A fully connected layer and where its gradient goes."""

    weight: Floats
    """[outputs, inputs], as torch has it."""
    bias: Floats
    weight_gradient: Floats
    bias_gradient: Floats

    @classmethod
    def of(cls, parameters: Mapping[str, Floats], gradients: Mapping[str, Floats], name: str) -> DenseLayer:
        """Take a torch layer out of a network's named parameters; whatever is a view stays one."""
        weight, bias = f"{name}.weight", f"{name}.bias"
        return cls(parameters[weight], parameters[bias], gradients[weight], gradients[bias])

    def forward(self, inputs: Floats) -> Floats:
        """[n, inputs] -> [n, outputs]."""
        outputs: Floats = inputs @ self.weight.T
        outputs += self.bias
        return outputs

    def backward(self, inputs: Floats, gradient: Floats) -> None:
        """Write the gradient of weight and bias, given that of the outputs that `inputs` led to, [n, outputs]."""
        np.matmul(gradient.T, inputs, out=self.weight_gradient)
        np.add.reduce(gradient, axis=0, out=self.bias_gradient)

    def input_gradient(self, gradient: Floats) -> Floats:
        """Of the outputs, [n, outputs] -> of the inputs, [n, inputs]."""
        inputs: Floats = gradient @ self.weight
        return inputs


def relu(inputs: Floats) -> Floats:
    """In place."""
    return np.maximum(inputs, 0.0, out=inputs)


def relu_input_gradient(outputs: Floats, gradient: Floats) -> Floats:
    """In place of `gradient`, which is that of relu's outputs."""
    gradient *= outputs > 0.0
    return gradient
