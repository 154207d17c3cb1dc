"""Picks rows of several columns from all over the memory: in C, or in numpy where there was no compiler."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.generic]
Rows = npt.NDArray[np.int64]
Gather = Callable[[Rows, tuple[Column, ...], tuple[Column, ...], Rows], bool]


def numpy_gather(row_of_slot: Rows, columns: tuple[Column, ...], out: tuple[Column, ...], rows: Rows) -> bool:
    """Copy the slots of `rows` from each of `columns` to its array in `out`. All arrays are contiguous.

    A row's slot is its id modulo the common length of the columns and of `row_of_slot`, which is not 0. Returns whether
    every slot holds that row: `row_of_slot` has its id. Raises ValueError if arrays do not fit.
    """
    slots = rows % len(row_of_slot)
    for column, gathered in zip(columns, out, strict=True):
        if len(column) != len(row_of_slot):
            raise ValueError(f"a column of {len(column)} for {len(row_of_slot)} slots")
        column.take(slots, axis=0, out=gathered, mode="clip")  # "raise" would copy `out` once more
    return bool((row_of_slot.take(slots) == rows).all()) and int(rows.min(initial=0)) >= 0


gather: Gather
"""Does the same as `numpy_gather`, in the fastest way that is available here."""
try:
    from remuda.buffer._gather import gather_rows
except ImportError:
    gather = numpy_gather
else:
    gather = gather_rows
