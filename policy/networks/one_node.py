"""Layers as one node of autograd's graph.

Recording each operation takes as long as the small matrix products of reinforcement learning.
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
    """Layers with one backward pass for all. Modules keep it as an attribute and call `recorded` in `forward`. Second
    derivatives are refused."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        """Weight and bias of each layer."""
        self._leaf: torch.Tensor | None = None
        """Vector of all parameters, in any order; see `flatten`."""
        self._order: list[int] = []
        """Index of the parameter in every part of the vector."""
        self._sizes: list[int] = []
        """Length of each part."""
        self._no_gradients: tuple[None, ...] = ()
        """None for each view of the vector."""
        self._spare: tuple[torch.Tensor, list[torch.Tensor]] | None = None
        """A released vector of gradients, and its parts."""
        self._written: tuple[torch.Tensor, list[torch.Tensor]] | None = None
        """The newest vector of gradients, and its parts."""

    @abstractmethod
    def run(self, inputs: torch.Tensor) -> tuple[Outputs, object]:
        """Compute the outputs for inputs [n, inputs] without a graph, and the trace for `backward`. The trace must not
        contain the outputs: the graph keeps the trace and the outputs keep the graph, and such a circle waits for
        Python's garbage collector."""

    @abstractmethod
    def backward(
        self,
        trace: Any,
        by_outputs: Sequence[torch.Tensor | None],
        out: Sequence[torch.Tensor | None],
        *,
        to_inputs: bool,
    ) -> torch.Tensor | None:
        """Write a loss's gradient by each parameter to `out` (None: not needed), given the gradients by the outputs
        (None: 0). Returns the gradient by the inputs, if `to_inputs`."""

    @abstractmethod
    def fix(self, values: Sequence[torch.Tensor]) -> None:
        """Use this memory for all parameters from now on."""

    def recorded(self, inputs: torch.Tensor) -> Outputs:
        """The outputs for the inputs [n, inputs], in the graph."""
        return _recorded(self, inputs, *(self.parameters if self._leaf is None else (self._leaf,)))

    # --- one vector of all parameters: autograd takes some microseconds for each tensor

    def flatten(self, leaf: torch.Tensor, order: list[int]) -> None:
        """Record all parameters as one leaf of the graph: a vector on their memory, with parameter number `order`[k] at
        position k. Its gradient is theirs."""
        self._leaf, self._order = leaf, order
        self._sizes = [self.parameters[index].numel() for index in order]
        values = self.views(leaf.detach())
        self._no_gradients = (None,) * len(values)
        self.fix(values)

    def gradients(self, needed: Sequence[bool]) -> tuple[Sequence[torch.Tensor | None], Sequence[torch.Tensor | None]]:
        """Make uninitialised tensors for the needed gradients of the leaves, and of all parameters."""
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
        """Reuse the newest vector of gradients: nothing reads it any more."""
        self._spare = self._written

    def views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        """Split a vector like the leaf into views of the parameters, followed by any further views for `fix` and
        `backward`."""
        parts = [vector] * len(self._order)
        for index, part in zip(self._order, torch.split(vector, self._sizes), strict=True):
            parts[index] = part.view_as(self.parameters[index])
        return parts


class _Node(torch.autograd.Function):
    """The node of the layers in the graph."""

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
    """Raise RuntimeError if the backward pass is recorded (`create_graph=True`): its derivative would be wrong."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "Remuda's own layers and distributions have no second derivatives, and create_graph=True asks for them: "
            "bring a network of your own as policy.network, and compute likelihoods by torch.distributions"
        )


def nodes_of(network: nn.Module) -> Iterator[OneNode]:
    """Nodes kept by a network's modules."""
    for module in network.modules():
        yield from (part for part in vars(module).values() if isinstance(part, OneNode))
