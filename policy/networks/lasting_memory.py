"""Memory of large tensors that every update writes again: on huge pages, where the operating system has them."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from contextlib import suppress

import torch

PAGE_BYTES = 2 << 20
"""Of a huge page."""
LEAST_BYTES = 128 << 10
"""Smaller tensors are left to torch."""
_LINE_BYTES = 64
_ADVICE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux has it


class LastingMemory:
    """Gives out memory that is freed when all tensors on it are gone.

    A processor remembers where some thousand pages of 4 KiB are. An update of SAC touches more of them, and looks them
    up again and again, for a twentieth of its time. Of pages of 2 MiB it needs ten.
    """

    def __init__(self) -> None:
        self._left = torch.empty(0, dtype=torch.uint8)
        """The rest of the newest block."""

    def empty(self, shape: Sequence[int], *, like: torch.Tensor) -> torch.Tensor:
        """A tensor of this shape with any numbers in it, of the type and on the device of another."""
        size = math.prod(shape) * like.element_size()
        if _ADVICE is None or like.device.type != "cpu" or size < LEAST_BYTES:
            return like.new_empty(tuple(shape))
        if size > len(self._left):
            self._left = _block(size, _ADVICE)
        own, self._left = self._left[:size], self._left[-(-size // _LINE_BYTES) * _LINE_BYTES :]
        return own.view(like.dtype).view(tuple(shape))


def _block(size: int, advice: int) -> torch.Tensor:
    """Whole huge pages for so many bytes: uint8 [n]."""
    whole = -(-size // PAGE_BYTES) * PAGE_BYTES
    mapped = mmap.mmap(-1, whole + PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without them gives small ones
        mapped.madvise(advice)
    memory = torch.frombuffer(mapped, dtype=torch.uint8)
    first = -memory.data_ptr() % PAGE_BYTES
    return memory[first : first + whole]
