"""All parameters of a network as a vector: clipping, optimizer steps and copies are single operations."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import mmap
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.autograd.graph import _engine_run_backward  # pyright: ignore[reportPrivateUsage]

from remuda.policy.networks.one_node import OneNode, nodes_of

PAGE_BYTES = 2 << 20
"""Of a huge page."""
LEAST_BYTES = 128 << 10
"""Smaller tensors are left to torch."""
_LINE_BYTES = 64
_ADVICE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux has it


class HugePageMemory:
    """Allocates tensors on huge pages, freed together with the last tensor.

    A processor caches the addresses of some thousand pages of 4 KiB. An update of SAC touches more pages, and spends a
    twentieth of the time on lookups. With pages of 2 MiB ten pages are enough.
    """

    def __init__(self) -> None:
        self._block: mmap.mmap | None = None
        """The newest block; its bytes `_next` … `_end` are free."""
        self._next = self._end = 0

    def empty(self, shape: Sequence[int], *, like: torch.Tensor) -> torch.Tensor:
        """Make an uninitialised tensor of this shape, with the dtype and device of `like`. It has a separate storage,
        so a saved file contains no other tensor."""
        count = math.prod(shape)
        size = count * like.element_size()
        if _ADVICE is None or like.device.type != "cpu" or size < LEAST_BYTES:
            return like.new_empty(tuple(shape))
        if self._block is None or size > self._end - self._next:
            self._block, self._next, self._end = _block(size, _ADVICE)
        own = torch.frombuffer(self._block, dtype=like.dtype, count=count, offset=self._next)
        self._next += -(-size // _LINE_BYTES) * _LINE_BYTES
        return own.view(tuple(shape))


def _block(size: int, advice: int) -> tuple[mmap.mmap, int, int]:
    """Allocate whole huge pages for `size` bytes; returns the block, the first byte and the end."""
    whole = -(-size // PAGE_BYTES) * PAGE_BYTES
    block = mmap.mmap(-1, whole + PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without them gives small ones
        block.madvise(advice)
    first = -torch.frombuffer(block, dtype=torch.uint8).data_ptr() % PAGE_BYTES
    return block, first, first + whole


LARGEST_BYTES = 32 << 20
"""Size of the largest block whose memory is kept; glibc allows no more."""
MOST_KEPT_BYTES = 1 << 30
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@functools.cache
def keep_freed_memory() -> bool:
    """Let this process keep freed memory, up to MOST_KEPT_BYTES; returns True if the C library supports it.

    By default glibc returns large blocks to the system at once. An update allocates the same tensors as the update
    before: new pages for them take a tenth of an update of Atari's network.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc; on Windows there is no such library
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGEST_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, MOST_KEPT_BYTES))


@dataclass(frozen=True)
class Leaf:
    """A leaf tensor of the graph, with a part of the gradient."""

    tensor: torch.Tensor
    gradient: torch.Tensor
    """A view of the vector of gradients."""
    span: slice
    """Indices in the vector."""
    node: OneNode | None = None
    """The node of these parameters, if recorded as a single vector."""
    repeats: bool = False
    """True if an earlier leaf has the same numbers: both gradients are added."""


class FlatPart:
    """Adjacent parameters of the vector, with a separate optimizer: the parameters of a network among several."""

    def __init__(
        self,
        vector: torch.Tensor,
        gradient: torch.Tensor,
        leaves: Sequence[Leaf],
        named: Sequence[tuple[str, nn.Parameter]] = (),
    ) -> None:
        self.vector, self.gradient = vector, gradient
        """Views of the parameters, without a graph, and of their gradient."""
        self.named = named
        """The parameters, views of the vector, by their names in the network."""
        self.leaves = leaves
        """All leaves of a loss's graph."""
        self._tensors = tuple(leaf.tensor for leaf in leaves)

    def backward(self, *losses: torch.Tensor) -> None:
        """Write the gradient of the sum of `losses` (scalars) to `gradient`. Parameters without influence get 0."""
        for leaf, gradient in zip(self.leaves, _gradients(losses, self._tensors), strict=True):
            if gradient is None:
                if not leaf.repeats:
                    leaf.gradient.zero_()
            elif leaf.repeats:
                leaf.gradient.add_(gradient)
            else:
                leaf.gradient.copy_(gradient)
                if leaf.node is not None:
                    leaf.node.release()

    @contextmanager
    def constant(self) -> Generator[None]:
        """Context with these parameters as constants: graphs recorded within give no gradient to them."""
        for leaf in self.leaves:
            leaf.tensor.requires_grad_(False)
        try:
            yield
        finally:
            for leaf in self.leaves:
                leaf.tensor.requires_grad_(True)

    def clip_gradient(self, max_norm: float | None) -> torch.Tensor:
        """Scale the gradient down to the norm `max_norm` (None: no limit); return the norm before, a scalar tensor."""
        norm: torch.Tensor = torch.linalg.vector_norm(self.gradient)
        if max_norm is None:
            return norm
        if norm.is_cpu:  # where a look costs less than an operation
            if (number := norm.item()) > max_norm:
                self.gradient.mul_(max_norm / number)
        else:
            self.gradient.div_((norm / max_norm).clamp_(min=1.0))
        return norm

    def follow(self, source: torch.Tensor, share: float) -> None:
        """Move by this share towards another vector of the same layout (Polyak averaging of target networks); 1 copies
        it."""
        self.vector.lerp_(source, share)


def _hand_on(parameters: Sequence[nn.Parameter], leaf: torch.Tensor) -> None:
    """Split the gradient that torch's `backward` added to the leaf among the parameters, for other optimizers."""
    assert leaf.grad is not None
    for parameter, part in zip(parameters, torch.split(leaf.grad, [one.numel() for one in parameters]), strict=True):
        own = part.view_as(parameter)
        parameter.grad = own.clone() if parameter.grad is None else parameter.grad.add_(own)
    leaf.grad = None


def _gradients(losses: tuple[torch.Tensor, ...], tensors: tuple[torch.Tensor, ...]) -> Sequence[torch.Tensor | None]:
    """Gradients of the sum of losses by each tensor; None without influence. Same as torch.autograd.grad, whose checks
    take a tenth of the update of a small network."""
    graphs = tuple(loss for loss in losses if loss.requires_grad) or losses  # one may be constant
    ones = tuple(torch.ones_like(loss) for loss in graphs)
    return _engine_run_backward(graphs, ones, False, False, tensors, allow_unreachable=True, accumulate_grad=False)


class FlatParameters(FlatPart):
    """Moves a network's parameters and gradients into two vectors; the network's tensors become views of them.

    For the small networks of reinforcement learning, clipping and Adam over a dozen tensors cost more than the
    gradient; over one vector they cost a fifth. Load states into the network in place, never with `assign=True`, and
    never call `.to(device)` afterwards: otherwise the views are lost.
    """

    def __init__(self, network: nn.Module) -> None:
        parameters = list(network.parameters())
        flat = [parameter.detach().reshape(-1) for parameter in parameters]
        memory, numbers = HugePageMemory(), sum(len(part) for part in flat)
        vector = torch.cat(flat, out=memory.empty((numbers,), like=flat[0]))
        gradient = memory.empty((numbers,), like=flat[0]).zero_()
        self._network = network
        named = list(network.named_parameters())
        self._layout = [(name, parameter.shape) for name, parameter in named]
        self._others = network.state_dict().keys() - {name for name, _ in self._layout}
        for parameter, value, own in zip(parameters, self._views(vector), self._views(gradient), strict=True):
            parameter.data, parameter.grad = value, own
        super().__init__(vector, gradient, _leaves(network, vector, gradient), named)

    def snapshot(self) -> dict[str, np.ndarray]:
        """Copy the network's state to the host, by name: the vector in one transfer, and the buffers."""
        array = self.vector.to("cpu", copy=True).numpy()
        named: dict[str, np.ndarray] = {}
        start = 0
        for name, shape in self._layout:
            end = start + shape.numel()
            named[name] = array[start:end].reshape(shape)
            start = end
        if self._others:  # buffers, and second names of parameters
            state = self._network.state_dict()
            named |= {name: state[name].to("cpu", copy=True).numpy() for name in self._others}
        return named

    def part(self, prefix: str) -> FlatPart:
        """Return the adjacent parameters whose names begin with `prefix`. Raises ValueError if no name does, or if
        other parameters lie between them."""
        inside = [name.startswith(prefix) for name, _ in self._layout]
        first = inside.index(True) if any(inside) else len(inside)
        end = first + sum(inside)
        if not sum(inside) or not all(inside[first:end]):
            raise ValueError(f"no adjacent parameters have names that begin with {prefix!r}")
        sizes = [shape.numel() for _, shape in self._layout]
        span = slice(sum(sizes[:first]), sum(sizes[:end]))
        leaves = [leaf for leaf in self.leaves if span.start <= leaf.span.start and leaf.span.stop <= span.stop]
        return FlatPart(self.vector[span], self.gradient[span], leaves, self.named[first:end])

    def _views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        sizes = [shape.numel() for _, shape in self._layout]
        return [part.view(shape) for part, (_, shape) in zip(torch.split(vector, sizes), self._layout, strict=True)]


def _leaves(network: nn.Module, vector: torch.Tensor, gradient: torch.Tensor) -> list[Leaf]:
    """Make the leaves of a network on a vector. The layers of a node share a leaf if their parameters are adjacent.
    Every parameter is also a leaf, for losses that use single layers."""
    parameters = list(network.parameters())
    numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
    ends = list(itertools.accumulate(parameter.numel() for parameter in parameters))
    flattened: list[Leaf] = []
    for node in nodes_of(network):
        own = [numbers[id(parameter)] for parameter in node.parameters]
        order = sorted(own)
        if order == list(range(order[0], order[-1] + 1)):
            span = slice(ends[order[0]] - parameters[order[0]].numel(), ends[order[-1]])
            leaf = vector[span].requires_grad_()
            node.flatten(leaf, [own.index(number) for number in order])
            hook = functools.partial(_hand_on, [parameters[at] for at in order])
            leaf.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
            flattened.append(Leaf(leaf, gradient[span], span, node))
    spans = [slice(end - one.numel(), end) for one, end in zip(parameters, ends, strict=True)]
    covered = [any(leaf.span.start <= span.start < leaf.span.stop for leaf in flattened) for span in spans]
    each = zip(parameters, spans, covered, strict=True)
    return flattened + [Leaf(one, gradient[span].view_as(one), span, repeats=twice) for one, span, twice in each]
