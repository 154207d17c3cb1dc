"""Rows of several columns, picked from all over the memory: in C, or in numpy where there was no compiler."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.generic]
Slots = npt.NDArray[np.int64]
Gather = Callable[[tuple[Column, ...], tuple[Column, ...], Slots], None]


def numpy_gather(columns: tuple[Column, ...], out: tuple[Column, ...], slots: Slots) -> None:
    """Write column[slots] of each of `columns`, alike in length, to its array in `out`. All are contiguous.

    Raises IndexError for slots outside of the columns, and ValueError where an array of `out` does not fit.
    """
    height = min(map(len, columns), default=0)
    if columns and slots.size and not 0 <= slots.min() <= slots.max() < height:
        raise IndexError(f"slots {slots.min()} to {slots.max()} of columns of {height}")
    for column, rows in zip(columns, out, strict=True):
        column.take(slots, axis=0, out=rows, mode="clip")  # "raise" would copy `out` once more


gather: Gather
"""What `numpy_gather` does, as fast as it goes here."""
try:
    from remuda.buffer._gather import gather as compiled_gather
except ImportError:
    gather = numpy_gather
else:
    gather = compiled_gather
