"""Reads programs from the modules of a network, for collectors without torch.

A network's method `acting()` returns the modules of each output by name. Supported are torch's fully connected layers,
convolutions, max pools, layer and batch normalisation of rows, and activations, and modules with a method `steps`.
Outputs with other modules are computed by torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, cast, runtime_checkable

import numpy as np
import torch
from torch import nn

from remuda.policy.networks.program import (
    PROGRAM,
    Apply,
    BatchNorm,
    Convolution,
    Dense,
    Flatten,
    Function,
    LayerNorm,
    MaxPool,
    Programs,
    Steps,
    encoded,
    gives_rows,
)

_FUNCTIONS: Mapping[type[nn.Module], Function] = {
    nn.ReLU: "relu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.SiLU: "silu",
}


@runtime_checkable
class Acts(Protocol):
    """A network, or a part of it, with outputs for acting."""

    def acting(self) -> Mapping[str, nn.Module]:
        """Modules of each output, from encoded inputs [n, …] to float32 [n, outputs]."""
        ...


@runtime_checkable
class Readable(Protocol):
    """A module that describes its own computation."""

    def steps(self, names: Names) -> Steps | None:
        """Steps of the computation; None if only torch can compute it."""
        ...


class Names:
    """The names of a network's tensors."""

    def __init__(self, network: nn.Module) -> None:
        self._names = {id(tensor): name for name, tensor in (*network.named_parameters(), *network.named_buffers())}

    def of(self, tensor: torch.Tensor) -> str:
        """The name of a parameter or a buffer."""
        return self._names[id(tensor)]

    def knows(self, tensor: torch.Tensor) -> bool:
        """True if the network has this parameter or buffer."""
        return id(tensor) in self._names

    def maybe(self, tensor: torch.Tensor | None) -> str | None:
        return None if tensor is None else self.of(tensor)


def programs(network: nn.Module) -> dict[str, np.ndarray]:
    """Programs of a network and all acting parts, by published name."""
    found: dict[str, np.ndarray] = {}
    for prefix, module in cast("Iterator[tuple[str, nn.Module]]", network.named_modules()):
        if isinstance(module, Acts):
            found[f"{prefix}.{PROGRAM}" if prefix else PROGRAM] = encoded(programs_of(module))
    return found


def programs_of(part: Acts) -> Programs:
    """Return the steps of each output of a network, or of a part of one; tensors are named within `part`."""
    assert isinstance(part, nn.Module)
    names = Names(part)
    read = {output: steps_of(module, names) for output, module in part.acting().items()}
    return {output: steps if steps is not None and gives_rows(steps) else None for output, steps in read.items()}


def steps_of(module: nn.Module, names: Names) -> Steps | None:
    """Steps of a module; None if only torch can compute it."""
    if isinstance(module, Readable):
        return module.steps(names)
    if type(module) is nn.Sequential:
        return joined(list(module), names)
    if not _is_plain(module, names):
        return None
    if isinstance(module, nn.Linear):
        return (Dense(names.of(module.weight), names.maybe(module.bias)),)
    if isinstance(module, nn.Conv2d):
        return _convolution(module, names)
    if isinstance(module, nn.MaxPool2d):
        return _pool(module)
    if isinstance(module, nn.LayerNorm | nn.BatchNorm1d):
        return _normalisation(module, names)
    if isinstance(module, nn.Identity | nn.Dropout):
        return ()
    if isinstance(module, nn.Flatten) and module.start_dim == 1 and module.end_dim == -1:
        return (Flatten(),)
    function = _function(module)
    return None if function is None else (Apply(function),)


def _is_plain(module: nn.Module, names: Names) -> bool:
    """True if the class is torch's own, with plain parameters. A user's subclass may compute something else, and hooks
    and parametrisations (spectral norm) change weights."""
    weights = (getattr(module, name, None) for name in ("weight", "bias"))
    known = all(names.knows(weight) for weight in weights if isinstance(weight, torch.Tensor))
    return known and type(module).forward.__module__.startswith("torch.")


def joined(modules: Sequence[nn.Module], names: Names) -> Steps | None:
    """Steps of successive modules."""
    steps: Steps = ()
    for module in modules:
        own = steps_of(module, names)
        if own is None:
            return None
        steps += own
    return steps


def _function(module: nn.Module) -> Function | None:
    if isinstance(module, nn.ELU):
        return "elu" if module.alpha == 1.0 else None
    if isinstance(module, nn.LeakyReLU):
        return "leaky_relu" if module.negative_slope == 0.01 else None
    if isinstance(module, nn.Softplus):
        return "softplus" if (module.beta, module.threshold) == (1, 20) else None
    if isinstance(module, nn.GELU):
        return "gelu" if module.approximate == "none" else "gelu_tanh"
    return _FUNCTIONS.get(type(module))


def _normalisation(module: nn.LayerNorm | nn.BatchNorm1d, names: Names) -> Steps | None:
    if isinstance(module, nn.LayerNorm):
        one_axis = len(module.normalized_shape) == 1
        return (LayerNorm(names.maybe(module.weight), names.maybe(module.bias), module.eps),) if one_axis else None
    if module.running_mean is None or module.running_var is None:
        return None
    moments = names.of(module.running_mean), names.of(module.running_var)
    return (BatchNorm(*moments, names.maybe(module.weight), names.maybe(module.bias), module.eps),)


def _convolution(module: nn.Conv2d, names: Names) -> Steps | None:
    plain = module.groups == 1 and module.dilation == (1, 1) and module.padding_mode == "zeros"
    if not plain or isinstance(module.padding, str):
        return None
    stride, padding = ((int(pair[0]), int(pair[1])) for pair in (module.stride, module.padding))
    return (Convolution(names.of(module.weight), names.maybe(module.bias), stride, padding),)


def _pool(module: nn.MaxPool2d) -> Steps | None:
    kernel, stride, padding, dilation = map(_pair, (module.kernel_size, module.stride, module.padding, module.dilation))
    plain = dilation == (1, 1) and not module.ceil_mode and not module.return_indices
    return (MaxPool(kernel, stride, padding),) if plain else None


def _pair(sides: int | tuple[int, ...]) -> tuple[int, int]:
    return (sides, sides) if isinstance(sides, int) else (sides[0], sides[1])
