"""Memory that updates free is kept for the next one, instead of being given back to the system and taken again."""

from __future__ import annotations

import ctypes
import functools

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
