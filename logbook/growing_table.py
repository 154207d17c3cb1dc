"""A table in a text file that grows during a run: one header, and rows that are written at once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from remuda.storage.appended import AppendedFile
from remuda.storage.atomic import write_text

COLUMN = re.compile(r"[A-Za-z_][\w./ -]*")
"""A name that needs no quotes, whatever separates the columns."""


class Table:
    """Appends rows under their columns; a value that is missing is nan.

    An existing file is continued with its own columns: an unfinished line of a killed writer is removed, and so are
    rows whose `step_column` is above `resumed_step` (None keeps all). Raises ValueError for a file that is not such a
    table.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        *,
        separator: str,
        step_column: str,
        resumed_step: int | None = None,
    ) -> None:
        self.path = path
        self._separator = separator
        kept = self._rows_to_keep(step_column, math.inf if resumed_step is None else resumed_step)
        if not kept:
            kept = [separator.join(_distinct(columns)) + "\n"]
        text = "".join(kept)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text, durable=True)
        self.columns = kept[0].rstrip("\n").split(separator)
        self.last_row = (
            dict(zip(self.columns, kept[-1].rstrip("\n").split(separator), strict=False)) if kept[1:] else {}
        )
        """As it was when the file was opened: column to cell; empty where there was none."""
        self._file = AppendedFile(path)

    def append(self, values: Mapping[str, float]) -> None:
        """Append one row; values of other columns are left out. Raises OSError."""
        cells = (str(values.get(column, math.nan)) for column in self.columns)
        self._file.append((self._separator.join(cells) + "\n").encode())

    def widen(self, columns: Sequence[str]) -> None:
        """Add these columns at the end, with nan in the rows so far: the file is written again, whole or not at all.

        Raises ValueError for names that would break the table, and OSError; the table is as it was then.
        """
        wider = _distinct([*self.columns, *columns])
        header, *rows = self.path.read_text(encoding="utf-8").splitlines()
        missing = self._separator + self._separator.join(["nan"] * len(columns))
        names = self._separator + self._separator.join(columns)
        write_text(self.path, "\n".join([header + names, *(row + missing for row in rows)]) + "\n", durable=True)
        self._file.close()
        self._file = AppendedFile(self.path)
        self.columns = wider

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rows_to_keep(self, step_column: str, last_step: float) -> list[str]:
        """Read the header and the whole rows up to `last_step`; nothing where there is no whole header."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        if not whole:
            return []
        header, *rows = whole
        try:
            step = header.rstrip("\n").split(self._separator).index(step_column)
            return [header, *(row for row in rows if float(row.split(self._separator)[step]) <= last_step)]
        except (ValueError, IndexError) as error:
            raise ValueError(f"{self.path} cannot be continued ({error}): correct it, or move it away") from None


def _distinct(columns: Sequence[str]) -> list[str]:
    wrong = [column for column in columns if not COLUMN.fullmatch(column)]
    if wrong or len(set(columns)) < len(columns):
        raise ValueError(f"columns must be distinct names of letters, digits and _ . / -, not {wrong or list(columns)}")
    return list(columns)
