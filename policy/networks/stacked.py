"""Perceptrons of one shape as one: their weights lie in one tensor per layer, so that each layer is one product.

Forward and backward are written out, as in remuda.policy.networks.perceptrons, and for the same reason.
"""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import nn

from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.lasting_memory import LastingMemory
from remuda.policy.networks.precision import Products
from remuda.policy.networks.program import Apply, Dense, Steps
from remuda.policy.networks.reading import Names


class StackedLayer(nn.Module):
    """`count` fully connected layers beside each other. Weights and biases start as torch draws those of nn.Linear."""

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
        """[n, inputs], which all layers read, or [count, n, inputs], which each reads a part of, to [count, n,
        outputs]."""
        each = inputs.expand(self._count, -1, -1)
        return torch.baddbmm(self.bias, each, self.weight)


class StackedPerceptron(nn.Sequential):
    """`count` perceptrons of these widths beside each other, with relu between their layers: float32 [n, widths[0]] ->
    [count, n, widths[-1]]. All read the same inputs."""

    def __init__(self, count: int, widths: Sequence[int]) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [StackedLayer(count, inputs, outputs), nn.ReLU()]
        super().__init__(*layers[:-1])


class StackSlice(nn.Module):
    """One of the perceptrons of a stack: [n, inputs] -> [n, outputs]."""

    def __init__(self, stack: StackedPerceptron, index: int) -> None:
        super().__init__()
        self.stack, self._index = stack, index

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute all, and take one."""
        outputs: torch.Tensor = self.stack(inputs)[self._index]
        return outputs

    def steps(self, names: Names) -> Steps:
        """See remuda.policy.networks.reading."""
        layers = [layer for layer in self.stack if isinstance(layer, StackedLayer)]
        steps: Steps = ()
        for layer in layers:
            steps += (Dense(names.of(layer.weight), names.of(layer.bias), self._index), Apply("relu"))
        return steps[:-1]


_threshold_backward = torch.ops.aten.threshold_backward.grad_input

Made = list[torch.Tensor]
"""What a Stack made: its inputs [n, inputs], then the outputs of each layer [count, n, outputs]."""


class Stack:
    """A StackedPerceptron on the parameters of a network. Nothing here is recorded: call it under `no_grad`.

    What lies between the layers is written into the same memory each time: for tensors of half a megabyte and more the
    operating system would be asked again in every update, which takes longer than some of the products.
    """

    def __init__(self, parameters: FlatParameters, prefix: str, products: Products) -> None:
        """Find the layers whose names begin with `prefix`; weights are read and gradients written where `parameters`
        keeps them. `products` says which layers between the first and the last are computed in bfloat16."""
        self._products = products
        weights, gradients = (
            parameters.by_name(vector) for vector in (parameters.vector.detach(), parameters.gradient)
        )
        names = parameters.layers(prefix)
        self._layers = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names]
        self._gradients = [(gradients[f"{name}.weight"], gradients[f"{name}.bias"]) for name in names]
        self._transposed = [weight.transpose(1, 2) for weight, _ in self._layers]
        self._count = len(self._layers[0][0])
        self._memory = LastingMemory()
        self._spaces: dict[tuple[str, int, int], torch.Tensor] = {}

    def forward(self, inputs: torch.Tensor) -> Made:
        """Compute all layers for the inputs [n, inputs]. All but the last outputs are good until the next call."""
        made = [inputs]
        for index, (weight, bias) in enumerate(self._layers):
            if index:
                made[-1].relu_()
            read = self._each(made[-1])
            if index < len(self._layers) - 1:
                given = self._product(index, read, weight, out=self._space("forward", index, len(inputs)))
            elif weight.shape[2] == 1:  # a product with one row is several times as fast as one with one column
                given = torch.bmm(self._transposed[index], read.transpose(1, 2)).transpose(1, 2)
            else:
                given = torch.bmm(read, weight)
            made.append(given.add_(bias))
        return made

    def backward(self, made: Made, gradient: torch.Tensor, *, learned: int) -> torch.Tensor:
        """Write the gradient of every layer, given what `forward` made and a loss's gradient by the last of it, [count,
        n, outputs], of all its rows or the first ones. It is called before the parameters change.

        Only the first `learned` rows count for it. Returns, of the rows that `gradient` has, the loss's gradient by
        what the first layer gave [count, n, outputs of the first layer]; `input_gradient` goes on from there.
        """
        rows = gradient.shape[1]
        for index in reversed(range(len(self._layers))):
            inputs = self._each(made[index])
            self._write_gradient(index, _first(inputs, learned), _first(gradient, learned))
            if index:
                by_inputs = self._space("backward", index - 1, rows)
                back = self._transposed[index]
                if back.shape[1] == 1:  # with one number the product is that of each number with each
                    torch.mul(gradient, back, out=by_inputs)
                else:
                    self._product(index, gradient, back, out=by_inputs)
                gradient = _threshold_backward(by_inputs, _first(inputs, rows), 0, grad_input=by_inputs)
        return gradient

    def _write_gradient(self, index: int, inputs: torch.Tensor, gradient: torch.Tensor) -> None:
        """Of layer `index`, which read the inputs [count, n, inputs] and has a loss's gradient [count, n, outputs]."""
        by_weight, by_bias = self._gradients[index]
        if by_weight.shape[2] == 1:
            torch.bmm(gradient.transpose(1, 2), inputs, out=by_weight.transpose(1, 2))
        elif self._rounds(index):
            self._products.multiply_transposed(inputs, gradient, out=by_weight)
        else:
            torch.bmm(inputs.transpose(1, 2), gradient, out=by_weight)
        torch.sum(gradient, 1, keepdim=True, out=by_bias)

    def _space(self, way: str, index: int, n: int) -> torch.Tensor:
        """Memory for what layer `index` gives, or the gradient by it, for n rows: [count, n, outputs]."""
        space = self._spaces.get((way, index, n))
        if space is None:
            weight = self._layers[index][0]
            space = self._memory.empty((self._count, n, weight.shape[2]), like=weight)
            self._spaces[way, index, n] = space
        return space

    def input_gradient(self, gradient: torch.Tensor, *, first: int) -> torch.Tensor:
        """From what `backward` returned to the loss's gradient by the inputs from number `first` on, [n, inputs -
        first]: of all perceptrons together."""
        weight = self._layers[0][0][:, first:]
        return torch.bmm(weight, gradient.transpose(1, 2)).sum(0).t()  # products with few columns are slow

    def _product(self, index: int, left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        if self._rounds(index):
            return self._products.multiply(left, right, out=out)
        return torch.bmm(left, right, out=out)

    def _rounds(self, index: int) -> bool:
        """Whether layer `index` may be computed in bfloat16: the first, which reads observations, and the last are
        float32 always."""
        return 0 < index < len(self._layers) - 1

    def _each(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs if inputs.dim() == 3 else inputs.expand(self._count, -1, -1)


def _first(each: torch.Tensor, rows: int) -> torch.Tensor:
    """The first rows of [count, n, k]."""
    return each if each.shape[1] == rows else each[:, :rows]
