"""Reads the progress.txt of a run for the page: all columns in a bounded number of buckets.

Until a long table is read whole, evenly spaced rows serve as a sample.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from remuda.client.plots.runs import cell_number
from remuda.page.growing import FloatArray, GrowingReader, Pyramid, Reduction
from remuda.storage.untrusted import open_regular

X_COLUMNS = {"env_step": "TotalEnvInteracts", "wall_s": "Time"}
"""Columns for the x axis of curves."""
_HEADER_BYTES = 64 << 10
_BLOCK_BYTES = 1 << 20
_SAMPLE_BYTES = 4 << 10
"""Most bytes per row of a sample; longer rows are left out."""
_OF_VALUE: tuple[Reduction, ...] = ("last", "min", "max")


class ProgressReader(GrowingReader):
    """Reads the table of a run.

    Each column of the file has three columns in `table`: last, least and largest value of each bucket.
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
