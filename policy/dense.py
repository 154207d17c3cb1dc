"""Fully connected layers, forward and backward, without modules and without a graph."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch


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
        torch.mm(gradient.t(), inputs, out=self.weight_gradient)
        torch.sum(gradient, 0, out=self.bias_gradient)

    def input_gradient(self, gradient: torch.Tensor) -> torch.Tensor:
        """Of the outputs, [n, outputs] -> of the inputs, [n, inputs]."""
        return gradient @ self.weight


def relu_backward(outputs: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient of relu's inputs, in place of that of its outputs."""
    return gradient.mul_(outputs.sign())
