"""Perceptrons forward and backward, written out, for any update rule on small networks.

At the sizes of reinforcement learning, torch's modules and the graph that it records take as long as the matrix
products between them: docs/architecture.md has the figures.
"""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from remuda.policy.networks.dense import Activation, DenseLayer, Perceptron
from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.precision import Products

Outputs = tuple[torch.Tensor, ...]


class Perceptrons:
    """Perceptrons that begin with the same layers, or with none. Nothing here is recorded: call it under `no_grad`."""

    def __init__(
        self,
        parameters: FlatParameters,
        activation: Activation,
        *,
        heads: Sequence[Sequence[str]],
        shared: Sequence[str] = (),
        split: bool = False,
        products: Products | None = None,
    ) -> None:
        """Find the layers in a network's parameters.

        Args:
            parameters: Where weights are read and gradients written.
            activation: Follows every layer but the last of each head.
            heads: Names of the layers of each perceptron, at least one layer each.
            shared: Names of the layers before them.
            split: Each head reads an equal share of what the shared layers make; otherwise each reads all of it.
            products: Which layers are computed in bfloat16; None: none. Outputs have the precision of the parameters.
        """
        weights, gradients = (
            parameters.by_name(vector) for vector in (parameters.vector.detach(), parameters.gradient)
        )

        def layers(names: Sequence[str]) -> list[DenseLayer]:
            return [DenseLayer.of(weights, gradients, name) for name in names]

        self._shared = Perceptron(layers(shared), activation, activates_last=True, products=products)
        self._heads = [
            Perceptron(layers(names), activation, reads_observations=not shared, products=products) for names in heads
        ]
        self._split = split

    def forward(self, inputs: torch.Tensor) -> Outputs:
        """The outputs of each head for the inputs [n, inputs]: [n, outputs]."""
        parts = self._parts(self._shared.forward(inputs).last)
        return tuple([head.forward(part).last for head, part in zip(self._heads, parts, strict=True)])

    def head(self, index: int, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs of one head for the inputs."""
        return self._heads[index].forward(self._parts(self._shared.forward(inputs).last)[index]).last

    def vjp(self, inputs: torch.Tensor) -> tuple[Outputs, Callable[[Outputs], None]]:
        """What `forward` gives, and the vector-Jacobian product: a function that is given a loss's gradient by each
        output, [n, outputs], and writes that by the layers' parameters. It is called before these change."""
        shared = self._shared.forward(inputs)
        made = [head.forward(part) for head, part in zip(self._heads, self._parts(shared.last), strict=True)]

        def backward(gradients: Outputs) -> None:
            by_parts = [
                head.backward(computed, gradient, to_inputs=len(shared.weights) > 0)
                for head, computed, gradient in zip(self._heads, made, gradients, strict=True)
            ]
            if shared.weights:
                self._shared.backward(shared, self._whole(by_parts), to_inputs=False)

        return tuple([computed.last for computed in made]), backward

    def _parts(self, features: torch.Tensor) -> Sequence[torch.Tensor]:
        """The inputs of each head."""
        return features.chunk(len(self._heads), dim=1) if self._split else [features] * len(self._heads)

    def _whole(self, by_parts: list[torch.Tensor]) -> torch.Tensor:
        """The gradient by all inputs of the heads, given that by the inputs of each."""
        if self._split:
            return torch.cat(by_parts, dim=1)
        whole, *others = by_parts
        for other in others:
            whole.add_(other)
        return whole
