"""Layers as one node of autograd's graph.

Recording each of their operations takes as long as the small products of reinforcement learning themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import nn

from remuda.policy.networks.precision import Lowers

Outputs = tuple[torch.Tensor, ...]


class OneNode(Lowers, ABC):
    """Layers with a backward pass that is written for the whole. Modules keep one as an attribute and call `recorded`
    in their `forward`. Derivatives of gradients are refused."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        """The weight and the bias of each layer."""
        self._leaf: torch.Tensor | None = None
        """All parameters as one vector, in any order; see `flatten`."""
        self._order: list[int] = []
        """Of the parts of the vector by order, which parameter each is."""
        self._sizes: list[int] = []
        """Of each of them."""
        self._no_gradients: tuple[None, ...] = ()
        """For each view of the vector."""
        self._spare: tuple[torch.Tensor, list[torch.Tensor]] | None = None
        """A vector of gradients that nobody reads any more, and its parts."""
        self._written: tuple[torch.Tensor, list[torch.Tensor]] | None = None
        """The newest such vector that was written."""

    @abstractmethod
    def run(self, inputs: torch.Tensor) -> tuple[Outputs, object]:
        """The outputs for the inputs [n, inputs], without a graph, and everything that `backward` reads. That has none
        of the outputs: the graph keeps it and they keep the graph; in a circle they would wait for Python's
        collector."""

    @abstractmethod
    def backward(
        self,
        trace: Any,
        by_outputs: Sequence[torch.Tensor | None],
        out: Sequence[torch.Tensor | None],
        *,
        to_inputs: bool,
    ) -> torch.Tensor | None:
        """Write a loss's gradient by each parameter to `out`, given that by each output, None for 0; returns that by
        the inputs, if it is asked for. Where `out` is None, nobody asks."""

    @abstractmethod
    def fix(self, values: Sequence[torch.Tensor]) -> None:
        """Told the memory of all parameters, which stays the same from now on."""

    def recorded(self, inputs: torch.Tensor) -> Outputs:
        """The outputs for the inputs [n, inputs], in the graph."""
        return _recorded(self, inputs, *(self.parameters if self._leaf is None else (self._leaf,)))

    # --- one vector of all parameters: autograd takes some microseconds for each tensor

    def flatten(self, leaf: torch.Tensor, order: list[int]) -> None:
        """Record all parameters as one leaf of the graph: a vector on their memory, in which parameter number
        `places`[k] comes as number k. Its gradient is theirs."""
        self._leaf, self._order = leaf, order
        self._sizes = [self.parameters[index].numel() for index in order]
        values = self.views(leaf.detach())
        self._no_gradients = (None,) * len(values)
        self.fix(values)

    def gradients(self, needed: Sequence[bool]) -> tuple[Sequence[torch.Tensor | None], Sequence[torch.Tensor | None]]:
        """Tensors with any numbers, for the gradient of each leaf that needs one, and of each parameter."""
        if self._leaf is None:
            each = zip(self.parameters, needed, strict=True)
            own = [torch.empty_like(tensor, requires_grad=False) if needs else None for tensor, needs in each]
            return own, own
        if not needed[0]:
            return (None,), self._no_gradients
        spare, self._spare = self._spare, None
        if spare is None:
            vector = torch.empty_like(self._leaf, requires_grad=False)
            spare = vector, self.views(vector)
        self._written = spare
        return spare[:1], spare[1]

    def release(self) -> None:
        """Say that nobody reads the newest vector of gradients any more."""
        self._spare = self._written

    def views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """View a vector like the leaf as the parameters, and in any other ways in which `fix` and `backward` want it
        after them."""
        parts = [vector] * len(self._order)
        for index, part in zip(self._order, torch.split(vector, self._sizes), strict=True):
            parts[index] = part.view_as(self.parameters[index])
        return parts


class _Node(torch.autograd.Function):
    """The layers, by their own parameters or by one vector of them."""

    @staticmethod
    def forward(ctx: Any, layers: OneNode, inputs: torch.Tensor, *_leaves: torch.Tensor) -> Outputs:
        outputs, ctx.trace = layers.run(inputs)
        ctx.layers = layers
        return outputs

    @staticmethod
    def backward(ctx: Any, *by_outputs: torch.Tensor | None) -> Any:
        require_one_derivative()
        _, to_inputs, *needed = ctx.needs_input_grad
        layers: OneNode = ctx.layers
        by_leaves, out = layers.gradients(needed)
        return None, layers.backward(ctx.trace, by_outputs, out, to_inputs=to_inputs), *by_leaves


_recorded = cast("Callable[..., Outputs]", _Node.apply)


def require_one_derivative() -> None:
    """Raise RuntimeError where the way back is itself recorded (`create_graph=True`): its derivative would be wrong."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "Remuda's own layers and distributions have no second derivatives, and create_graph=True asks for them: "
            "bring a network of your own as policy.network, and compute likelihoods by torch.distributions"
        )


def nodes_of(network: nn.Module) -> Iterator[OneNode]:
    """Those that a network's modules keep."""
    for module in network.modules():
        yield from (part for part in vars(module).values() if isinstance(part, OneNode))
