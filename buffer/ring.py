"""The learner's copy of the newest rows, column by column."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import numpy.typing as npt

from remuda.buffer.chunk import Columns
from remuda.buffer.episodes import ABOUT_EPISODES
from remuda.buffer.frames import FRAMES, FramePool, Slots, StackLayout, check_columns, stacks_name

Column = npt.NDArray[np.generic]
Rows = npt.NDArray[np.int64]
Gather = Callable[[Rows, tuple[Column, ...], tuple[Column, ...], Rows], bool]

_NONE = -1
"""Stands in place of a row id if the slot holds no row."""


def numpy_gather(row_of_slot: Rows, columns: tuple[Column, ...], out: tuple[Column, ...], rows: Rows) -> bool:
    """Copy the slots of `rows` from each of `columns` to its array in `out`. All arrays are contiguous.

    A row's slot is its id modulo the common length of the columns and of `row_of_slot`, which is not 0. Returns True if
    every slot holds the requested row: `row_of_slot` has its id. Raises ValueError if arrays do not fit.
    """
    slots = rows % len(row_of_slot)
    for column, gathered in zip(columns, out, strict=True):
        if len(column) != len(row_of_slot):
            raise ValueError(f"a column of {len(column)} for {len(row_of_slot)} slots")
        column.take(slots, axis=0, out=gathered, mode="clip")  # "raise" would copy `out` once more
    return bool((row_of_slot.take(slots) == rows).all()) and int(rows.min(initial=0)) >= 0


gather: Gather
"""`numpy_gather`, in C if compiled."""
try:
    from remuda.buffer._gather import gather_rows
except ImportError:
    gather = numpy_gather
else:
    gather = gather_rows


class RowsNotHeldError(LookupError):
    """Rows were requested that the ring never got or has overwritten."""


class ColumnRing:
    """Holds the newest `capacity` rows of every column. The first chunk decides names, dtypes and shapes.

    Stacks of images are kept as frames and indices, and are built when rows are gathered.

    The capacity of the replay index is enough if a row that is drawn is gathered before newer rows are written.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self._size = capacity
        self._columns: Columns = {}
        """[slots, …]; FRAMES has the positions of each row's frames in the pool, int32 [slots, frames per row]."""
        self._frames: tuple[FramePool, StackLayout] | None = None
        self._layout: dict[str, tuple[np.dtype[np.generic], tuple[int, ...]]] = {}  # of the first chunk's columns
        # Which row each slot holds, so that a gather notices every row that is not here, gaps included.
        self._rows: Rows = np.full(self._size, _NONE, np.int64)
        self._versions: Rows | None = None
        """[slots]: version of rewritten columns, _NONE for rows as written. Created by the first rewriting, which most
        algorithms never do."""
        self.next_row = 0
        """One above the highest row written."""

    @property
    def nbytes(self) -> int:
        """Memory of the full columns and the present frames, in bytes."""
        frames = self._frames[0].nbytes if self._frames else 0
        return sum(column.nbytes for column in self._columns.values()) + frames

    def write(self, first_row: int, columns: Columns) -> None:
        """Write the rows first_row, first_row + 1 … in place of the oldest.

        Columns for datasets are left out. Rows may be left out (evicted or quarantined before their announcement) but
        never go back. Raises ValueError if
        they do, for more rows than the ring holds, or if a column is missing, unexpected, or of another dtype or shape
        than in the first chunk.
        """
        count = check_columns(columns)
        columns = {name: column for name, column in columns.items() if name not in ABOUT_EPISODES}
        if first_row < self.next_row:
            raise ValueError(f"rows from {first_row} on were written before; the next row is {self.next_row}")
        if count > self._size:
            raise ValueError(f"{count} rows do not fit a ring of {self._size}; make chunks smaller or the ring larger")
        if not self._columns:
            self._allocate(columns)
        self._check_fits(columns)
        if first_row > self.next_row:
            self._leave_out(first_row)
        end_row = first_row + count
        columns = self._pooled(columns, end_row)
        start = first_row % self._size
        until_wrap = min(count, self._size - start)
        wrapped = count - until_wrap
        for name, column in columns.items():
            kept = self._columns[name]
            kept[start : start + until_wrap] = column[:until_wrap]
            kept[:wrapped] = column[until_wrap:]
        self._rows[start : start + until_wrap] = np.arange(first_row, first_row + until_wrap)
        self._rows[:wrapped] = np.arange(first_row + until_wrap, end_row)
        if self._versions is not None:
            self._versions[start : start + until_wrap] = _NONE
            self._versions[:wrapped] = _NONE
        self.next_row = end_row

    def rewrite(self, first_row: int, columns: Columns, version: int) -> int:
        """Overwrite these `columns` of the rows first_row, first_row + 1 …, each row as a whole. Returns the number of
        changed rows.

        Only held rows whose columns have a lower `version` change; rows as written have none. Raises ValueError, and
        nothing changes, for an unknown column, or another dtype or shape.
        """
        if not self._columns:
            return 0
        for name, column in columns.items():
            kept = self._columns.get(name)
            if kept is None or kept.dtype != column.dtype or kept.shape[1:] != column.shape[1:] or name == FRAMES:
                raise ValueError(
                    f"column {name!r}, {column.dtype}{list(column.shape[1:])} per row, cannot be rewritten"
                )
        if self._versions is None:
            self._versions = np.full(self._size, _NONE, np.int64)
        rows = np.arange(first_row, first_row + check_columns(columns))
        slots = rows % self._size
        places = np.flatnonzero((self._rows[slots] == rows) & (self._versions[slots] < version))
        slots = slots[places]
        for name, column in columns.items():
            self._columns[name][slots] = column[places]
        self._versions[slots] = version
        return len(places)

    def gather(self, rows: Rows) -> Columns:
        """Return every column at `rows` int64 [b], as [b, …].

        Stacks are views of one array, without overlaps. Raises RowsNotHeldError.
        """
        gathered: Columns = {
            name: np.empty((len(rows), *column.shape[1:]), column.dtype) for name, column in self._columns.items()
        }
        if not gather(self._rows, (*self._columns.values(),), (*gathered.values(),), np.ascontiguousarray(rows)):
            raise self._not_held(rows)
        if self._frames is not None:
            pool, layout = self._frames
            gathered |= layout.split(pool.gather(cast("Slots", gathered.pop(FRAMES))))
        return gathered

    def _not_held(self, rows: Rows) -> RowsNotHeldError:
        missing = rows[(self._rows[rows % self._size] != rows) | (rows < 0)]
        return RowsNotHeldError(
            f"{len(missing)} of {len(rows)} rows are not in the ring, the first of them {missing[:3].tolist()}; "
            f"it holds at most {self._size} rows below {self.next_row}"
        )

    def _leave_out(self, end_row: int) -> None:
        """Clear the slots of the rows up to `end_row`, which never come."""
        rows = np.arange(max(self.next_row, end_row - self._size), end_row)
        self._rows[rows % self._size] = _NONE

    def _allocate(self, columns: Columns) -> None:
        self._layout = {name: (column.dtype, column.shape[1:]) for name, column in columns.items()}
        kept = {name: column for name, column in columns.items() if name != FRAMES and stacks_name(name) is None}
        if FRAMES in columns:
            layout = StackLayout(columns)
            self._frames = FramePool(columns[FRAMES]), layout
            kept[FRAMES] = layout.join(columns)
        self._columns = {name: np.empty((self._size, *c.shape[1:]), c.dtype) for name, c in kept.items()}

    def _pooled(self, columns: Columns, end_row: int) -> Columns:
        """Put the chunk's frames into the pool, and return the columns with positions in the pool."""
        if self._frames is None:
            return columns
        pool, layout = self._frames
        pool.release(end_row - self._size)
        slots = pool.add(columns[FRAMES], end_row=end_row)
        kept = {name: column for name, column in columns.items() if name in self._columns}
        return {**kept, FRAMES: slots.take(layout.join(columns))}

    def _check_fits(self, columns: Columns) -> None:
        if columns.keys() != self._layout.keys():
            raise ValueError(
                f"columns are {sorted(columns)}, the first chunk's were {sorted(self._layout)}: "
                "do all collectors run the same config?"
            )
        for name, column in columns.items():
            dtype, shape = self._layout[name]
            if column.dtype != dtype or column.shape[1:] != shape:
                raise ValueError(
                    f"column {name!r} is {column.dtype}{list(column.shape[1:])} per row, "
                    f"the first chunk's was {dtype}{list(shape)}"
                )
