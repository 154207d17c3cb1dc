"""All parameters of a network as one vector, so that clipping, stepping and copying are single operations."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from remuda.policy.networks.lasting_memory import LastingMemory


@dataclass(frozen=True)
class FlatPart:
    """Parameters that lie beside each other in the vector: those of one network of several, with an optimizer of its
    own."""

    vector: torch.Tensor
    """A view of the parameters, without a graph."""
    gradient: torch.Tensor
    """A view of their gradient."""

    def clip_gradient(self, max_norm: float | None) -> torch.Tensor:
        """Scale the gradient down to `max_norm` and return its norm from before (a scalar tensor)."""
        norm: torch.Tensor = torch.linalg.vector_norm(self.gradient)
        if max_norm is not None:
            self.gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def follow(self, source: torch.Tensor, share: float) -> None:
        """Move this share of the way to another vector of the same layout, as target networks do (Polyak averaging); 1
        copies it."""
        self.vector.lerp_(source, share)


class FlatParameters:
    """Moves a network's parameters and gradients into two vectors; the network's own become views of them.

    For the small networks of reinforcement learning, clipping and Adam over a dozen tensors cost more than the
    gradient itself; over one vector they cost a fifth. Load states into the network in place (never `assign=True`,
    never `.to(device)` afterwards), or the views come loose.
    """

    def __init__(self, network: nn.Module) -> None:
        parameters = list(network.parameters())
        flat = [parameter.detach().reshape(-1) for parameter in parameters]
        memory, numbers = LastingMemory(), sum(len(part) for part in flat)
        self.vector = nn.Parameter(torch.cat(flat, out=memory.empty((numbers,), like=flat[0])))
        self.gradient = memory.empty((numbers,), like=flat[0]).zero_()
        self.vector.grad = self.gradient
        self._whole = FlatPart(self.vector.detach(), self.gradient)
        self._layout = [(name, parameter.shape) for name, parameter in network.named_parameters()]
        for parameter, value, gradient in zip(
            parameters, self._views(self.vector.detach()), self._views(self.gradient), strict=True
        ):
            parameter.data = value
            parameter.grad = gradient

    def layers(self, *prefixes: str) -> list[str]:
        """Names of the layers that have a weight and begin with one of these, in the order of the vector."""
        names = [name.removesuffix(".weight") for name, _ in self._layout if name.endswith(".weight")]
        return [name for name in names if name.startswith(prefixes)]

    def by_name(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """View a vector of this layout as the network's named tensors."""
        return {name: view for (name, _), view in zip(self._layout, self._views(vector), strict=True)}

    def snapshot(self) -> dict[str, np.ndarray]:
        """Copy the vector to the host, in one transfer, as the network's named arrays."""
        array = self.vector.detach().to("cpu", copy=True).numpy()
        named: dict[str, np.ndarray] = {}
        start = 0
        for name, shape in self._layout:
            end = start + shape.numel()
            named[name] = array[start:end].reshape(shape)
            start = end
        return named

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
        return FlatPart(self.vector.detach()[span], self.gradient[span])

    def _views(self, vector: torch.Tensor) -> list[torch.Tensor]:
        sizes = [shape.numel() for _, shape in self._layout]
        return [part.view(shape) for part, (_, shape) in zip(torch.split(vector, sizes), self._layout, strict=True)]
