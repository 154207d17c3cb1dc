"""Memory of large tensors that stay while a network learns: on huge pages, where the operating system has them."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import ctypes
import functools
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
