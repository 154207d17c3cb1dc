"""Perceptrons of torch's layers, as one node of autograd's graph.

The layers stay torch's: they are learned, saved and exported as modules. Recording each operation takes as long as the
small matrix products of reinforcement learning, so all layers are recorded at once, with one backward pass.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from remuda.policy.networks.one_node import OneNode, Outputs
from remuda.policy.networks.precision import Lowering, Products, rounding

Activation = Literal["tanh", "relu"]


@dataclass
class _Dense:
    """A fully connected layer, and its activation."""

    weight: nn.Parameter
    """[outputs, inputs]."""
    bias: nn.Parameter
    activation: Activation | None
    lowers: bool = False
    """True if the product may be computed in bfloat16."""
    fixed: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
    """Cached result of `values`, once the memory is fixed."""

    def copy(self, memo: dict[int, Any]) -> _Dense:
        """The layer in a copy of the network; `memo` is deepcopy's."""
        return _Dense(copy.deepcopy(self.weight, memo), copy.deepcopy(self.bias, memo), self.activation)

    def values(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The weight, its transpose and the bias, without a graph."""
        if self.fixed is not None:
            return self.fixed
        weight = self.weight.detach()
        return weight, weight.t(), self.bias.detach()


@dataclass
class _Trace:
    """Data of some layers for the backward pass."""

    outputs: list[torch.Tensor]
    """The inputs [n, inputs], then the outputs of each layer, except the last layer of a head. Hidden outputs may be
    bfloat16."""
    weights: list[torch.Tensor]
    """Weights in the products, by layer: the parameter, or a rounded copy."""
    rounded: list[bool]
    """True for layers with a product in bfloat16; see `rounding`."""


class Perceptrons(OneNode):
    """Heads on the outputs of shared layers, or on the inputs without shared layers.

    Gives the same numbers as the modules, up to rounding, with gradients by autograd. Networks keep it as an attribute
    and call it in `forward`. Second derivatives are not available. The first layer, which reads observations, and the
    last layer of each head are never computed in bfloat16.
    """

    def __init__(
        self,
        heads: Sequence[Sequence[_Dense]],
        shared: Sequence[_Dense] = (),
        *,
        split: bool = False,
        dueling: bool = False,
        value_last: bool = False,
    ) -> None:
        self._shared, self._heads = list(shared), [list(head) for head in heads]
        self._split, self._dueling, self._value_last = split, dueling, value_last
        for index, layer in enumerate(self._shared):
            layer.lowers = index > 0
        for head in self._heads:
            for index, layer in enumerate(head):
                layer.lowers = layer.activation is not None and (index > 0 or bool(self._shared))
        every = [*self._shared, *itertools.chain.from_iterable(self._heads)]
        super().__init__([tensor for layer in every for tensor in (layer.weight, layer.bias)])
        lengths = [len(layers) for layers in (self._shared, *self._heads)]
        self._begins = [2 * end for end in itertools.accumulate(lengths)]
        """Index of each head's first parameter, and the number of parameters."""
        self._alike = 0 if split else _number_alike(self._heads)
        self._stacks: list[_Dense] = []
        """The first layers of all heads, stacked, if they are `_alike` and lie at equal distances in memory."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Perceptrons:
        """Copy the layers, but not the leaf: the parameters of the copy lie elsewhere."""
        shared, *heads = [[layer.copy(memo) for layer in layers] for layers in (self._shared, *self._heads)]
        return Perceptrons(heads, shared, split=self._split, dueling=self._dueling, value_last=self._value_last)

    def fix(self, values: Sequence[torch.Tensor]) -> None:
        for index, layer in enumerate([*self._shared, *itertools.chain.from_iterable(self._heads)]):
            weight, bias = values[2 * index : 2 * index + 2]
            layer.fixed = weight, weight.t(), bias
        stacks = values[len(self.parameters) :]
        self._stacks = [
            replace(layer, lowers=False, fixed=(weight, weight.mT, bias.unsqueeze(1)))
            for layer, weight, bias in zip(self._heads[0], stacks[::2], stacks[1::2], strict=False)
        ]

    def views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """See OneNode; followed by weight and bias of each stack."""
        parts = super().views(vector)
        indices = range(2 * self._alike)
        stacks = [_stack([parts[begin + index] for begin in self._begins[:-1]]) for index in indices]
        whole = [stack for stack in stacks if stack is not None]
        return parts + whole if len(whole) == len(stacks) else parts

    @classmethod
    def of(
        cls,
        heads: Sequence[nn.Module],
        shared: Sequence[nn.Module] = (),
        *,
        split: bool = False,
        dueling: bool = False,
        value_last: bool = False,
    ) -> Perceptrons | None:
        """Read fully connected layers with tanh or relu between them; None if the modules contain other layers.

        Args:
            heads: one module per output.
            shared: successive modules before the heads.
            split: each head reads an equal share of the shared outputs; otherwise all of them.
            dueling: the heads are a value [n, 1] and advantages [n, actions], which become action values (Wang et al.
                2016, equation 9).
            value_last: the last head has one output, a value, returned as [n].
        """
        of_heads = [_layers((head,)) for head in heads]
        before = _layers(shared)
        if before is None or not all(of_heads):
            return None
        return cls([head for head in of_heads if head], before, split=split, dueling=dueling, value_last=value_last)

    def __call__(self, inputs: torch.Tensor) -> Outputs:
        """Compute the outputs of each head, [n, outputs], for inputs float32 [n, inputs]; for dueling heads only the
        action values."""
        return self.recorded(inputs) if torch.is_grad_enabled() else self.run(inputs)[0]

    def head(self, index: int, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the outputs of a head, without a graph: [n, outputs]."""
        part = self._parts(self._run(self._shared, inputs).outputs[-1])[index]
        return self._run(self._heads[index], part).outputs[-1]

    # --- forward

    def _parts(self, features: torch.Tensor) -> Sequence[torch.Tensor]:
        """Inputs of each head."""
        return features.chunk(len(self._heads), dim=1) if self._split else [features] * len(self._heads)

    def _joined(self, outputs: list[torch.Tensor]) -> Outputs:
        if self._value_last:
            outputs[-1] = outputs[-1].squeeze(1)
        return (dueling_values(*outputs),) if self._dueling else tuple(outputs)

    def _by_heads(self, by: Sequence[torch.Tensor | None], heads: Sequence[_Trace]) -> Sequence[torch.Tensor | None]:
        """Gradients by the heads' outputs before `_joined`."""
        if self._value_last and (by_value := by[-1]) is not None:
            by = (*by[:-1], by_value.unsqueeze(1))
        return _by_dueling(by[0], heads) if self._dueling else by

    def _run(self, layers: Sequence[_Dense], inputs: torch.Tensor) -> _Trace:
        trace = _Trace([inputs], [], [])
        for layer in layers:
            given = trace.outputs[-1]
            if layer.lowers and self.products is not None and self.products.lowers(len(inputs), *layer.weight.shape):
                outputs, weight, rounds = _lowered_product(self.products, layer, given)
            else:
                weight, transposed, bias = layer.values()
                product = torch.addmm if weight.dim() == 2 else torch.baddbmm
                rounds, outputs = False, product(bias, _as(weight, given), transposed)
            trace.weights.append(weight)
            trace.rounded.append(rounds)
            if layer.activation == "tanh":
                outputs = _tanh_(_as(layer.weight, outputs))
            elif layer.activation == "relu":
                outputs = outputs.relu_()
            trace.outputs.append(outputs)
        return trace

    # --- backward

    def run(self, inputs: torch.Tensor) -> tuple[Outputs, tuple[_Trace, _Trace, list[_Trace]]]:
        """See OneNode. The trace has three parts: shared layers, stacks, and remaining layers of each head."""
        shared = self._run(self._shared, inputs)
        stacks = self._stacks if self.products is None or self.products.precision != "bfloat16" else []
        features = shared.outputs[-1]
        stacked = self._run(stacks, features.expand(len(self._heads), -1, -1) if stacks else features)
        parts = stacked.outputs[-1].unbind() if stacks else self._parts(features)
        heads = [self._run(head[len(stacks) :], part) for head, part in zip(self._heads, parts, strict=True)]
        return self._joined([trace.outputs.pop() for trace in heads]), (shared, stacked, heads)

    def backward(
        self,
        trace: tuple[_Trace, _Trace, list[_Trace]],
        by_outputs: Sequence[torch.Tensor | None],
        out: Sequence[torch.Tensor | None],
        *,
        to_inputs: bool,
    ) -> torch.Tensor | None:
        shared, stacked, heads = trace
        by_heads = self._by_heads(by_outputs, heads)
        stacks = self._stacks[: len(stacked.weights)]
        to_shared = to_inputs or bool(self._shared)
        by_stacks = torch.empty_like(stacked.outputs[-1]) if stacks else None
        by_stack_inputs = [None] * len(heads) if by_stacks is None else by_stacks.unbind()
        by_parts: list[torch.Tensor] = []
        for index, (layers, of_head, given, out_inputs) in enumerate(
            zip(self._heads, heads, by_heads, by_stack_inputs, strict=True)
        ):
            by_output = _zero_gradient(layers[-1], of_head) if given is None else given
            own = out[self._begins[index] + 2 * len(stacks) : self._begins[index + 1]]
            to_head = to_shared or out_inputs is not None
            by_parts.append(
                _backward(layers[len(stacks) :], of_head, by_output, own, to_inputs=to_head, out_inputs=out_inputs)
            )
        if by_stacks is not None:
            by_parts = list(_backward(stacks, stacked, by_stacks, out[len(self.parameters) :], to_inputs=to_shared))
        if not to_shared:
            return None
        by_features = torch.cat(by_parts, dim=1) if self._split else _sum(by_parts)
        by_inputs = _backward(self._shared, shared, by_features, out[: self._begins[0]], to_inputs=to_inputs)
        return by_inputs if to_inputs else None


def dueling_values(value: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """Values [n, actions] of states worth `value` [n, 1] (Wang et al. 2016, equation 9)."""
    return value + advantage - advantage.mean(dim=1, keepdim=True)


def _layers(modules: Iterable[nn.Module]) -> list[_Dense] | None:
    """Layers of successive modules; None if the modules contain other layers."""
    found: list[_Dense] = []
    for module in modules:
        for part in module if isinstance(module, nn.Sequential) else (module,):
            parameters = dict(part.named_parameters())
            if isinstance(part, nn.Linear) and len(parameters) == 2:
                found.append(_Dense(parameters["weight"], parameters["bias"], None))
            elif isinstance(part, nn.Tanh | nn.ReLU) and found and found[-1].activation is None:
                found[-1].activation = "tanh" if isinstance(part, nn.Tanh) else "relu"
            else:
                return None
    return found


def _number_alike(heads: Sequence[Sequence[_Dense]]) -> int:
    """Number of first layers that are alike in all heads, without the last layer."""
    number = 0
    for layers in zip(*(head[:-1] for head in heads), strict=False):
        if len(heads) == 1 or len({(layer.weight.shape, layer.activation) for layer in layers}) > 1:
            break
        number += 1
    return number


def _stack(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """View tensors [...] of one memory as [count, ...]; None for unequal distances."""
    offsets = [tensor.storage_offset() for tensor in tensors]
    first, distance = tensors[0], offsets[1] - offsets[0]
    if distance <= 0 or any(after - before != distance for before, after in itertools.pairwise(offsets)):
        return None
    return first.as_strided((len(tensors), *first.shape), (distance, *first.stride()))


def _lowered_product(
    products: Products, layer: _Dense, inputs: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """Compute a layer in bfloat16; returns its outputs, the weight of the product, and True if float32 was rounded."""
    rounds = products.lowering is not Lowering.COPIED
    number = layer.weight.dtype if rounds else torch.bfloat16
    with rounding(rounds) as read:
        weight = read(layer.weight.detach().to(number))
        return torch.addmm(layer.bias.to(number), read(inputs.to(number)), weight.t()), weight, rounds


def _backward(
    layers: Sequence[_Dense],
    trace: _Trace,
    gradient: torch.Tensor,
    out: Sequence[torch.Tensor | None],
    *,
    to_inputs: bool,
    out_inputs: torch.Tensor | None = None,
) -> torch.Tensor:
    """Write a loss's gradient by the parameters of some layers. Returns the gradient by their inputs, if `to_inputs`,
    in `out_inputs` if given."""
    for index in reversed(range(len(layers))):
        layer, weight, rounds = layers[index], trace.weights[index], trace.rounded[index]
        if layer.activation is not None:
            gradient = _before_activation(layer.activation, trace.outputs[index + 1], gradient)
        inputs, gradient = _as(weight, trace.outputs[index]), _as(weight, gradient)
        continues = index > 0 or to_inputs
        if rounds:
            with rounding(True) as read:
                gradient = _through(weight, read(inputs), read(gradient), out[2 * index :], continues=continues)
        else:
            to = None if index else out_inputs
            gradient = _through(weight, inputs, gradient, out[2 * index :], continues=continues, out_inputs=to)
    return gradient


def _through(
    weight: torch.Tensor,
    inputs: torch.Tensor,
    gradient: torch.Tensor,
    out: Sequence[torch.Tensor | None],
    *,
    continues: bool,
    out_inputs: torch.Tensor | None = None,
) -> torch.Tensor:
    """Write the gradient of a layer. Returns the gradient by its inputs if the backward pass `continues`, else
    `gradient`."""
    by_weight, by_bias = out[:2]
    product = torch.mm if gradient.dim() == 2 else torch.bmm
    if by_weight is not None:
        if inputs.dtype is not by_weight.dtype:
            by_weight.copy_(product(gradient.mT, inputs))
        elif 4 * inputs.shape[-1] <= gradient.shape[-1]:  # products with few columns are slow, those with few rows not
            by_weight.copy_(product(inputs.mT, gradient).mT)
        else:
            product(gradient.mT, inputs, out=by_weight)
    if by_bias is not None:
        torch.sum(gradient, -2, dtype=by_bias.dtype, out=by_bias)
    return product(gradient, weight, out=out_inputs) if continues else gradient


def _zero_gradient(layer: _Dense, trace: _Trace) -> torch.Tensor:
    """A gradient of 0 by the outputs of a head's last layer."""
    return layer.weight.new_zeros(len(trace.outputs[0]), len(layer.weight))


def _before_activation(activation: Activation, outputs: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    gradient = _as(outputs, gradient)
    before: torch.Tensor = (
        torch.ops.aten.tanh_backward(gradient, outputs)
        if activation == "tanh"
        else torch.ops.aten.threshold_backward(gradient, outputs, 0.0)
    )
    return before


def _by_dueling(by_values: torch.Tensor | None, heads: Sequence[_Trace]) -> list[torch.Tensor | None]:
    """Gradients by the inputs of `dueling_values`, given the gradient by the action values [n, actions]."""
    if by_values is None:
        return [None] * len(heads)
    by_value = by_values.sum(dim=1, keepdim=True)
    return [by_value, by_values - by_value / by_values.shape[1]]


def _sum(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    first, *others = parts
    for other in others:
        first = first + other
    return first


def _as(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Convert to the dtype of `like`, if needed: a check here is several times as fast as torch's conversion."""
    return values if values.dtype is like.dtype else values.to(like.dtype)


def _tanh_(values: torch.Tensor) -> torch.Tensor:
    """Take the hyperbolic tangent in place, of float32 or float64. torch's is MKL's, which on an AMD processor takes
    ten times as long as numpy's: for two layers of 64 and a batch of 256, as long as the matrix products."""
    if values.device.type == "cpu":
        array = values.numpy()
        np.tanh(array, out=array)
    else:
        values.tanh_()
    return values
