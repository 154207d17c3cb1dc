"""All parameters of a network as one vector, so that clipping, stepping and copying are single operations."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import mmap
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

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
    """Gives out memory that is freed when all tensors on it are gone.

    A processor remembers where some thousand pages of 4 KiB are. An update of SAC touches more of them, and looks them
    up again and again, for a twentieth of its time. Of pages of 2 MiB it needs ten.
    """

    def __init__(self) -> None:
        self._block: mmap.mmap | None = None
        """The newest block; its bytes from `_next` up to `_end` are free."""
        self._next = self._end = 0

    def empty(self, shape: Sequence[int], *, like: torch.Tensor) -> torch.Tensor:
        """A tensor of this shape with any numbers in it, of the type and on the device of another. It has a storage of
        its own, so that a file it is saved in holds nothing else."""
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
    """Whole huge pages for so many bytes, where they begin, and where they end."""
    whole = -(-size // PAGE_BYTES) * PAGE_BYTES
    block = mmap.mmap(-1, whole + PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without them gives small ones
        block.madvise(advice)
    first = -torch.frombuffer(block, dtype=torch.uint8).data_ptr() % PAGE_BYTES
    return block, first, first + whole


LARGEST_BYTES = 32 << 20
"""Largest block that comes from memory which is kept; glibc allows no more."""
MOST_KEPT_BYTES = 1 << 30
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@functools.cache
def keep_freed_memory() -> bool:
    """Let this process keep what it frees, up to MOST_KEPT_BYTES; returns whether its C library can be told so.

    glibc gives large blocks back to the system at once. An update makes the same tensors as the one before: without
    their memory it asks for them page by page, which takes a tenth of an update of Atari's network.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc; on Windows there is no such library
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGEST_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, MOST_KEPT_BYTES))


@dataclass(frozen=True)
class Leaf:
    """A tensor of the graph, and the place of its gradient."""

    tensor: torch.Tensor
    gradient: torch.Tensor
    """A view of the vector of gradients."""
    span: slice
    """The numbers of the vector that it has."""
    node: OneNode | None = None
    """Whose parameters these are, if they are recorded as one vector."""
    repeats: bool = False
    """Whether a leaf before it has the same numbers: then both gradients add up."""


@dataclass(frozen=True)
class FlatPart:
    """Parameters that lie beside each other in the vector: those of one network of several, with an optimizer of its
    own."""

    vector: torch.Tensor
    """A view of the parameters, without a graph."""
    gradient: torch.Tensor
    """A view of their gradient."""
    leaves: Sequence[Leaf]
    """Everything that a loss's graph may begin with."""

    @functools.cached_property
    def _tensors(self) -> tuple[torch.Tensor, ...]:
        return tuple(leaf.tensor for leaf in self.leaves)

    def backward(self, *losses: torch.Tensor) -> None:
        """Write the gradient of the sum of losses (scalars) in place of the former one. Parameters that have no part in
        them get 0."""
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
        """A context in which networks take these parameters for constants: they get no gradient of what is computed."""
        for leaf in self.leaves:
            leaf.tensor.requires_grad_(False)
        try:
            yield
        finally:
            for leaf in self.leaves:
                leaf.tensor.requires_grad_(True)

    def clip_gradient(self, max_norm: float | None) -> torch.Tensor:
        """Scale the gradient down to `max_norm` and return its norm from before (a scalar tensor)."""
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
        """Move this share of the way to another vector of the same layout, as target networks do (Polyak averaging); 1
        copies it."""
        self.vector.lerp_(source, share)


def _hand_on(parameters: Sequence[nn.Parameter], leaf: torch.Tensor) -> None:
    """Give parameters the gradient that torch's own `backward` added to their leaf, for other optimizers."""
    assert leaf.grad is not None
    for parameter, part in zip(parameters, torch.split(leaf.grad, [one.numel() for one in parameters]), strict=True):
        own = part.view_as(parameter)
        parameter.grad = own.clone() if parameter.grad is None else parameter.grad.add_(own)
    leaf.grad = None


def _gradients(losses: tuple[torch.Tensor, ...], tensors: tuple[torch.Tensor, ...]) -> Sequence[torch.Tensor | None]:
    """Those of the sum of losses by each tensor; None where it has no part in them. As torch.autograd.grad, whose
    checks take a tenth of the update of a small network."""
    graphs = tuple(loss for loss in losses if loss.requires_grad) or losses  # one may be constant
    ones = tuple(torch.ones_like(loss) for loss in graphs)
    return _engine_run_backward(graphs, ones, False, False, tensors, allow_unreachable=True, accumulate_grad=False)


class FlatParameters:
    """Moves a network's parameters and gradients into two vectors; the network's own become views of them.

    For the small networks of reinforcement learning, clipping and Adam over a dozen tensors cost more than the
    gradient itself; over one vector they cost a fifth. Load states into the network in place (never `assign=True`,
    never `.to(device)` afterwards), or the views come loose.
    """

    def __init__(self, network: nn.Module) -> None:
        parameters = list(network.parameters())
        flat = [parameter.detach().reshape(-1) for parameter in parameters]
        memory, numbers = HugePageMemory(), sum(len(part) for part in flat)
        self.vector = nn.Parameter(torch.cat(flat, out=memory.empty((numbers,), like=flat[0])))
        self.gradient = memory.empty((numbers,), like=flat[0]).zero_()
        self.vector.grad = self.gradient
        self._network = network
        self._layout = [(name, parameter.shape) for name, parameter in network.named_parameters()]
        self._others = network.state_dict().keys() - {name for name, _ in self._layout}
        gradients = self._views(self.gradient)
        for parameter, value, gradient in zip(parameters, self._views(self.vector.detach()), gradients, strict=True):
            parameter.data = value
            parameter.grad = gradient
        self._whole = FlatPart(self.vector.detach(), self.gradient, self._leaves(network, parameters, gradients))

    def layers(self, *prefixes: str) -> list[str]:
        """Names of the layers that have a weight and begin with one of these, in the order of the vector."""
        names = [name.removesuffix(".weight") for name, _ in self._layout if name.endswith(".weight")]
        return [name for name in names if name.startswith(prefixes)]

    def snapshot(self) -> dict[str, np.ndarray]:
        """Copy the network's state to the host, by name: the vector in one transfer, and its buffers."""
        array = self.vector.detach().to("cpu", copy=True).numpy()
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

    def backward(self, *losses: torch.Tensor) -> None:
        """See FlatPart, of all parameters."""
        self._whole.backward(*losses)

    def clip_gradient(self, max_norm: float | None) -> torch.Tensor:
        """See FlatPart, of all parameters."""
        return self._whole.clip_gradient(max_norm)

    def part(self, prefix: str) -> FlatPart:
        """The parameters whose names begin with `prefix`, which lie beside each other. Raises ValueError if there are
        none, or if others lie between them."""
        inside = [name.startswith(prefix) for name, _ in self._layout]
        first = inside.index(True) if any(inside) else len(inside)
        end = first + sum(inside)
        if not sum(inside) or not all(inside[first:end]):
            raise ValueError(f"no parameters beside each other have names that begin with {prefix!r}")
        sizes = [shape.numel() for _, shape in self._layout]
        span = slice(sum(sizes[:first]), sum(sizes[:end]))
        whole = self._whole
        leaves = [leaf for leaf in whole.leaves if span.start <= leaf.span.start and leaf.span.stop <= span.stop]
        return FlatPart(whole.vector[span], whole.gradient[span], leaves)

    def _leaves(
        self, network: nn.Module, parameters: Sequence[nn.Parameter], gradients: Sequence[torch.Tensor]
    ) -> list[Leaf]:
        """Layers that are one node have all their parameters as one leaf, where these lie beside each other. Each
        parameter is one as well: a loss may use the layers by themselves."""
        numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
        ends = list(itertools.accumulate(parameter.numel() for parameter in parameters))
        flattened: list[Leaf] = []
        for node in nodes_of(network):
            own = [numbers[id(parameter)] for parameter in node.parameters]
            order = sorted(own)
            if order == list(range(order[0], order[-1] + 1)):
                span = slice(ends[order[0]] - parameters[order[0]].numel(), ends[order[-1]])
                leaf = self.vector.detach()[span].requires_grad_()
                node.flatten(leaf, [own.index(number) for number in order])
                hook = functools.partial(_hand_on, [parameters[at] for at in order])
                leaf.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
                flattened.append(Leaf(leaf, self.gradient[span], span, node))
        each = zip(parameters, gradients, ends, strict=True)
        single = [Leaf(one, gradient, slice(end - one.numel(), end)) for one, gradient, end in each]
        covered = [any(leaf.span.start <= one.span.start < leaf.span.stop for leaf in flattened) for one in single]
        return flattened + [replace(one, repeats=twice) for one, twice in zip(single, covered, strict=True)]

    def _views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        sizes = [shape.numel() for _, shape in self._layout]
        return [part.view(shape) for part, (_, shape) in zip(torch.split(vector, sizes), self._layout, strict=True)]
