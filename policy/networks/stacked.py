"""Stacked perceptrons of equal shape: a tensor per layer holds all weights, and a layer is a single product."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from remuda.policy.networks.one_node import OneNode, Outputs
from remuda.policy.networks.precision import Products
from remuda.policy.networks.program import Apply, Dense, Steps
from remuda.policy.networks.reading import Names


class StackedLayer(nn.Module):
    """`count` parallel fully connected layers. Weights and biases start as in nn.Linear."""

    weight: nn.Parameter
    """[count, inputs, outputs]."""
    bias: nn.Parameter
    """[count, 1, outputs]."""

    def __init__(self, count: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self._count = count
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(count, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(count, 1, outputs).uniform_(-bound, bound))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[n, inputs] for all layers, or [count, n, inputs] with separate inputs, to [count, n, outputs]."""
        each = inputs.expand(self._count, -1, -1)
        return torch.baddbmm(self.bias, each, self.weight)


def stacked_layers(count: int, widths: Sequence[int]) -> nn.Sequential:
    """Make `count` parallel perceptrons, with relu between layers: [n, widths[0]] -> [count, n, widths[-1]]."""
    dense = (StackedLayer(count, inputs, outputs) for inputs, outputs in itertools.pairwise(widths))
    return nn.Sequential(*[module for layer in dense for module in (layer, nn.ReLU())][:-1])


class StackedPerceptron(nn.Sequential):
    """The perceptrons of `stacked_layers` with a single pass through all layers: float32 [n, widths[0]] -> [count, n,
    widths[-1]]."""

    def __init__(self, count: int, widths: Sequence[int]) -> None:
        super().__init__(*stacked_layers(count, widths))
        self._fused = _Fused(list(self.parameters()))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training:
            plain: torch.Tensor = super().forward(input)  # type: ignore[no-untyped-call]
            return plain
        (outputs,) = self._fused.recorded(input) if torch.is_grad_enabled() else self._fused.run(input)[0]
        return outputs


class Beside(nn.ModuleList):
    """Parallel modules on the same inputs: [n, inputs] -> [count, n, outputs]."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.stack([module(inputs).float() for module in self])


class StackSlice(nn.Module):
    """A single perceptron of a stack: [n, inputs] -> [n, outputs]."""

    def __init__(self, stack: StackedPerceptron, index: int) -> None:
        super().__init__()
        self.stack, self._index = stack, index

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute all perceptrons, and select one."""
        outputs: torch.Tensor = self.stack(inputs)[self._index]
        return outputs

    def steps(self, names: Names) -> Steps:
        layers = [layer for layer in self.stack if isinstance(layer, StackedLayer)]
        steps: Steps = ()
        for layer in layers:
            steps += (Dense(names.of(layer.weight), names.of(layer.bias), self._index), Apply("relu"))
        return steps[:-1]


_threshold_backward = torch.ops.aten.threshold_backward.grad_input


class _Layer(NamedTuple):
    """A StackedLayer without a graph."""

    weight: torch.Tensor
    transposed: torch.Tensor
    bias: torch.Tensor
    narrow: bool
    """True for few outputs: products with few rows are up to four times as fast as products with few columns."""
    lowers: bool
    """True if the layer may be computed in bfloat16."""


class _Fused(OneNode):
    """All layers of a StackedPerceptron. The first layer, which reads observations, and the last are never computed in
    bfloat16."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__(parameters)
        self._layers: list[_Layer] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> _Fused:
        """Copy the layers, but not the leaf: the parameters of the copy lie elsewhere."""
        return _Fused(copy.deepcopy(self.parameters, memo))

    def fix(self, values: Sequence[torch.Tensor]) -> None:
        self._layers = _layers(values)

    def _current(self) -> tuple[list[_Layer], Products | None]:
        """The layers, and their Products if bfloat16 is on."""
        layers = self._layers or _layers([parameter.detach() for parameter in self.parameters])
        lowered = self.products is not None and self.products.precision == "bfloat16"
        return layers, self.products if lowered else None

    def run(self, inputs: torch.Tensor) -> tuple[Outputs, list[torch.Tensor]]:
        """See OneNode. The trace has the inputs of each layer [count, n, inputs]."""
        layers, products = self._current()
        made = [inputs.expand(len(layers[0].weight), -1, -1)]
        for layer in layers:
            read = made[-1]
            if layer.narrow:
                turned = torch.baddbmm(layer.bias.transpose(1, 2), layer.transposed, read.transpose(1, 2))
                made.append(turned.transpose(1, 2))
            elif products is not None and layer.lowers:
                made.append(_product(products, read, layer.weight).add_(layer.bias))
            else:
                made.append(torch.baddbmm(layer.bias, read, layer.weight))
            if layer is not layers[-1]:
                made[-1].relu_()
        return (made.pop(),), made

    def backward(
        self,
        trace: list[torch.Tensor],
        by_outputs: Sequence[torch.Tensor | None],
        out: Sequence[torch.Tensor | None],
        *,
        to_inputs: bool,
    ) -> torch.Tensor | None:
        (layers, products), gradient = self._current(), by_outputs[0]
        assert gradient is not None, "torch runs no backward pass without a gradient by the only output"
        for index in reversed(range(len(layers))):
            layer, inputs = layers[index], trace[index]
            lower = products if layer.lowers else None
            _write_gradient(layer, lower, inputs, gradient, *out[2 * index : 2 * index + 2])
            if index:
                if layer.weight.shape[2] == 1:  # with one number the product is that of each number with each
                    gradient = gradient * layer.transposed
                elif lower is not None:
                    gradient = _product(lower, gradient, layer.transposed)
                else:
                    gradient = torch.bmm(gradient, layer.transposed)
                _threshold_backward(gradient, inputs, 0, grad_input=gradient)
        if not to_inputs:
            return None
        return torch.bmm(layers[0].weight, gradient.transpose(1, 2)).sum(0).t()  # few columns, as in narrow layers


def _write_gradient(
    layer: _Layer,
    products: Products | None,
    inputs: torch.Tensor,
    gradient: torch.Tensor,
    by_weight: torch.Tensor | None,
    by_bias: torch.Tensor | None,
) -> None:
    """Write the gradient of a layer with inputs [count, n, inputs], given a loss's gradient by its outputs [count, n,
    outputs]."""
    if by_bias is not None:
        torch.sum(gradient, 1, keepdim=True, out=by_bias)
    if by_weight is None:
        return
    if layer.narrow:
        by_weight.copy_(torch.bmm(gradient.transpose(1, 2), inputs).transpose(1, 2))
    elif products is not None:
        products.multiply_transposed(inputs, gradient, out=by_weight)
    else:
        torch.bmm(inputs.transpose(1, 2), gradient, out=by_weight)


def _product(products: Products, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return products.multiply(left, right, out=left.new_empty(len(left), left.shape[1], right.shape[2]))


def _layers(values: Sequence[torch.Tensor]) -> list[_Layer]:
    """Make the layers from successive weights and biases."""
    pairs = list(zip(values[::2], values[1::2], strict=True))
    return [
        _Layer(weight, weight.transpose(1, 2), bias, 4 * weight.shape[2] < weight.shape[1], 0 < index < len(pairs) - 1)
        for index, (weight, bias) in enumerate(pairs)
    ]
