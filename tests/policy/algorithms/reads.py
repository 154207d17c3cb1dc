"""Counts how often an update would wait for its device, while the update runs on the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_Tensor = torch.Tensor
_READS = {
    *(_Tensor.cpu, _Tensor.item, _Tensor.tolist, _Tensor.__bool__, _Tensor.__float__, _Tensor.__int__),
    *(_Tensor.__index__, _Tensor.__array__, _Tensor.equal, torch.equal, _Tensor.nonzero, torch.nonzero),
    *(_Tensor.masked_select, torch.masked_select, _Tensor.unique, torch.unique, _Tensor.repeat_interleave),
}
"""Calls whose result, or its shape, depends on numbers of a tensor."""
_IS_CPU: object = getattr(_Tensor.is_cpu, "__get__")  # noqa: B009  (torch's annotations call it a bool)


class Reads(TorchFunctionMode):
    """Counts, by name, calls that copy numbers of a device to the host. Tensors deny that they are on the CPU, so code
    with a branch for the CPU takes the other branch."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Counter[str]()

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count a call, and make it."""
        if func == _IS_CPU:
            return False
        if func in _READS or (func in (_Tensor.__getitem__, _Tensor.__setitem__) and _masks(args[1])):
            self.found[func.__name__] += 1
        return func(*args, **kwargs or {})


def _masks(index: object) -> bool:
    """True if an index counts the True of a tensor."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, _Tensor) and part.dtype in (torch.bool, torch.uint8) for part in parts)
