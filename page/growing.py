"""Growing files: the read position, any number of rows in a bounded number of buckets, and progress.txt in buckets."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from remuda.client.plots.runs import cell_number
from remuda.storage.untrusted import open_regular

_TAIL_BYTES = 64
FloatArray = NDArray[np.float64]
Reduction = Literal["first", "last", "min", "max", "sum"]
"""Operation that combines the values of a bucket, ignoring nan: `last` is the last number, `sum` the sum of all
numbers. Without numbers the result is nan, or 0 for `sum`."""
MOST_BUCKETS = 1_024


@dataclass(frozen=True)
class ReadPosition:
    """Position in a file. The bytes before the position reveal a file that was cut and rewritten."""

    inode: int = 0
    offset: int = 0
    tail: bytes = b""


class GrowingReader(ABC):
    """Reads on in a growing file, and begins again in a replaced file. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget()

    def _forget(self) -> None:
        """Drop everything read."""
        self._mark = ReadPosition()
        self.size_bytes = 0

    @property
    @abstractmethod
    def kept_bytes(self) -> int:
        """Bytes of memory, approximately."""

    @abstractmethod
    def _read_block(self, descriptor: int, offset: int) -> tuple[int, bool]:
        """Read whole records from the offset on; return their bytes, and True at the readable end. Raises OSError."""

    def read(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Read blocks while `go_on()`; return True at the end. Raises OSError."""
        self.look()
        if not self._mark.inode:
            return True
        offset, done = self.offset, False
        with open_regular(self._path, follow_link=False) as file:
            while True:
                length, done = self._read_block(file.fileno(), offset)
                offset += length
                if done or not go_on():
                    break
        self._advance(offset)
        self.size_bytes = offset if done else max(self.size_bytes, offset)  # without an unfinished end
        return done

    @property
    def offset(self) -> int:
        """Bytes read."""
        return self._mark.offset

    @property
    def read_share(self) -> float:
        """Share of the file read."""
        return min(self.offset / self.size_bytes, 1.0) if self.size_bytes else 1.0

    @property
    def unread_bytes(self) -> int:
        """Unread bytes of the known size."""
        return max(self.size_bytes - self.offset, 0)

    def look(self) -> None:
        """Update the size, and detect a replaced file. A missing file counts as empty. Raises OSError."""
        try:
            file = open_regular(self._path, follow_link=False)
        except FileNotFoundError:
            if self._mark != ReadPosition():
                self._forget()
            return
        mark = self._mark
        with file:
            status = os.fstat(file.fileno())
            same = status.st_ino == mark.inode and status.st_size >= mark.offset
            if same and mark.tail:
                same = os.pread(file.fileno(), len(mark.tail), mark.offset - len(mark.tail)) == mark.tail
        if not same:
            if mark.inode:
                self._forget()
            self._mark = ReadPosition(status.st_ino)
        self.size_bytes = status.st_size

    def _advance(self, offset: int) -> None:
        """Move the position on. Raises OSError."""
        if offset > self.offset:
            with open_regular(self._path, follow_link=False) as file:
                length = min(_TAIL_BYTES, offset)
                tail = os.pread(file.fileno(), length, offset - length)
            self._mark = ReadPosition(self._mark.inode, offset, tail)


class Pyramid:
    """Keeps rows of numbers in buckets of equal size; the last bucket may be smaller.

    Beyond `most_buckets` neighbouring buckets are merged in pairs. So no extreme is lost, memory stays bounded, and the
    cost of a row is constant.
    """

    def __init__(self, reductions: Sequence[Reduction], *, most_buckets: int = MOST_BUCKETS) -> None:
        """Set a reduction for each column. `most_buckets` is even and at least 2; after merging at least half as many
        buckets remain. Raises ValueError."""
        if most_buckets < 2 or most_buckets % 2:
            raise ValueError(f"{most_buckets} buckets: give an even number of at least 2")
        self._reductions = tuple(reductions)
        self._columns: dict[Reduction, list[int]] = {
            kind: [at for at, one in enumerate(reductions) if one == kind] for kind in set(reductions)
        }
        self._most = most_buckets
        self.width = 1
        """Rows of a full bucket: a power of 2."""
        self._full = np.empty((0, len(reductions)))
        self._open = np.empty((0, len(reductions)))
        """Bucket with less than `_width` rows, as one row; empty without rows."""
        self._in_open = 0
        self.rows = 0
        """Number of added rows."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the arrays."""
        return self._full.nbytes + self._open.nbytes

    def extend(self, rows: FloatArray) -> None:
        """Add rows: float64 [n, columns]. Raises ValueError for another number of columns."""
        if rows.ndim != 2 or rows.shape[1] != len(self._reductions):
            raise ValueError(f"rows of shape {rows.shape} for {len(self._reductions)} columns")
        while len(rows):
            room = (self._most - len(self._full)) * self.width - self._in_open
            self._take(rows[:room])
            rows = rows[room:]
            if len(self._full) == self._most:
                self._full = self._reduced(self._full, 2)
                self.width *= 2

    def buckets(self, most: int | None = None) -> FloatArray:
        """Return float64 [buckets, columns] in the order of the rows, at most `most` (1 or more; None: all)."""
        found = np.concatenate([self._full, self._open])
        return found if most is None else self.merged(found, most)

    def merged(self, rows: FloatArray, most: int) -> FloatArray:
        """Combine neighbouring buckets to at most `most`."""
        if len(rows) <= most:
            return rows
        size = -(-len(rows) // most)
        whole = len(rows) // size * size
        parts = [self._reduced(rows[:whole], size)]
        if whole < len(rows):
            parts.append(self._reduced(rows[whole:], len(rows) - whole))
        return np.concatenate(parts)

    def _take(self, rows: FloatArray) -> None:
        """Add rows that fit into the free buckets."""
        self.rows += len(rows)
        if self._in_open:
            head, rows = rows[: self.width - self._in_open], rows[self.width - self._in_open :]
            self._in_open += len(head)
            together = np.concatenate([self._open, head])
            self._open = self._reduced(together, len(together))
            if self._in_open == self.width:
                self._full = np.concatenate([self._full, self._open])
                self._open, self._in_open = self._open[:0], 0
        whole = len(rows) // self.width * self.width
        if whole:
            self._full = np.concatenate([self._full, self._reduced(rows[:whole], self.width)])
        if whole < len(rows):
            self._in_open = len(rows) - whole
            self._open = self._reduced(rows[whole:], self._in_open)

    def _reduced(self, rows: FloatArray, size: int) -> FloatArray:
        """Combine every `size` neighbouring rows; `size` divides the number of rows."""
        groups = rows.reshape(-1, size, rows.shape[1])
        found = np.empty((len(groups), rows.shape[1]))
        for kind, columns in self._columns.items():
            found[:, columns] = _reduce(groups[:, :, columns], kind)
        return found


def _reduce(groups: FloatArray, kind: Reduction) -> FloatArray:
    """float64 [groups, size, columns] to [groups, columns]."""
    if kind == "sum":
        total: FloatArray = np.nansum(groups, axis=1)
        return total
    if kind == "min":
        least: FloatArray = np.fmin.reduce(groups, axis=1)
        return least
    if kind == "max":
        largest: FloatArray = np.fmax.reduce(groups, axis=1)
        return largest
    is_number = ~np.isnan(groups)
    from_end = groups.shape[1] - 1 - is_number[:, ::-1].argmax(axis=1)
    at = is_number.argmax(axis=1) if kind == "first" else from_end
    taken: FloatArray = np.take_along_axis(groups, at[:, None, :], axis=1)[:, 0]
    return taken


def listed(values: FloatArray) -> list[float | None]:
    """Return float64 [n] as a list with None for nan and infinities."""
    found: list[float | None] = values.tolist()
    for at in np.flatnonzero(~np.isfinite(values)).tolist():
        found[at] = None
    return found


def finite(value: float | None) -> float | None:
    """Return the number; None for a missing or infinite number and for nan."""
    return value if value is not None and math.isfinite(value) else None


X_COLUMNS = {"env_step": "TotalEnvInteracts", "wall_s": "Time"}
"""Columns for the x axis of curves."""
_HEADER_BYTES = 64 << 10
_BLOCK_BYTES = 1 << 20
_SAMPLE_BYTES = 4 << 10
"""Most bytes per row of a sample; longer rows are left out."""
_OF_VALUE: tuple[Reduction, ...] = ("last", "min", "max")


class ProgressReader(GrowingReader):
    """Reads the table of a run.

    Each column of the file has three columns in `table`: last, least and largest value of each bucket. Until a long
    table is read whole, evenly spaced rows serve as a sample.
    """

    def _forget(self) -> None:
        super()._forget()
        self.names: tuple[str, ...] = ()
        """Columns of the file; empty without a first line."""
        self.table = Pyramid(())

    @property
    def kept_bytes(self) -> int:
        return self.table.size_bytes + 4_096

    def look(self) -> None:
        """Update the size, and read a new first line. Raises OSError."""
        super().look()
        if self._mark.inode and not self.names:
            self._read_header()

    def _read_block(self, descriptor: int, offset: int) -> tuple[int, bool]:
        block = os.pread(descriptor, _BLOCK_BYTES, offset) if self.names else b""
        whole = block.rfind(b"\n") + 1
        if whole:
            self.table.extend(self._rows(block[:whole]))
        # an unfinished line, or a line longer than a block: not a table
        return whole, not whole or len(block) < _BLOCK_BYTES

    def sample(self, rows: int) -> FloatArray:
        """Return float64 [n <= rows, columns of the file]: rows at evenly spaced offsets, without an unfinished last
        line. Raises OSError."""
        self.look()
        if not self.names or not self.size_bytes:
            return np.empty((0, len(self.names)))
        found: list[bytes] = []
        with open_regular(self._path, follow_link=False) as file:
            for at in np.linspace(0, self.size_bytes - 1, rows, dtype=np.int64):
                lines = os.pread(file.fileno(), _SAMPLE_BYTES, int(at)).split(b"\n", 2)
                if len(lines) == 3:  # the rest of a line, a whole line, and more
                    found.append(lines[1])
        distinct = list(dict.fromkeys(found))
        return self._numbers(distinct)

    def bucketed(self, rows: FloatArray) -> FloatArray:
        """Convert rows of the file to the form of `table`: each value as last, least and largest."""
        return np.repeat(rows, len(_OF_VALUE), axis=1)

    def _read_header(self) -> None:
        with open_regular(self._path, follow_link=False) as file:
            head = os.pread(file.fileno(), _HEADER_BYTES, 0)
        line, end, _ = head.partition(b"\n")
        names = line.decode("utf-8", "replace").rstrip("\r").split("\t")
        if not end or len(set(names)) < len(names):
            return
        self.names = tuple(names)
        self.table = Pyramid(_OF_VALUE * len(names))
        self._advance(len(line) + 1)

    def _rows(self, block: bytes) -> FloatArray:
        """Return the rows of whole lines in the form of `table`."""
        lines = block.count(b"\n")
        try:
            numbers = np.fromstring(block, np.float64, sep=" ")
        except ValueError:  # a cell is not a number
            numbers = np.empty(0)
        if len(numbers) == lines * len(self.names):
            return self.bucketed(numbers.reshape(lines, -1))
        return self.bucketed(self._numbers(block.splitlines()))

    def _numbers(self, lines: Sequence[bytes]) -> FloatArray:
        """Return the lines with a cell for each column; nan for cells without a number."""
        rows = [row for line in lines if len(row := line.split(b"\t")) == len(self.names)]
        found = np.array([[cell_number(cell) for cell in row] for row in rows], np.float64)
        return found.reshape(-1, len(self.names))
