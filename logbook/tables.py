"""Tables that grow during a run, with one header and rows written at once: progress.csv, progress.jsonl."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from remuda.storage.atomic import write_text
from remuda.storage.record_file import AppendedFile
from remuda.storage.untrusted import json_of, read_bounded

COLUMN = re.compile(r"[A-Za-z_][\w./ -]*")
"""Pattern of names that need no quotes with any separator."""
_MOST_BYTES = 1 << 30
"""Largest table that is continued."""
_FIRST_COLUMNS = ("env_step", "train_iter", "episode", "wall_s")


class Table:
    """Appends rows under their columns; missing values are nan.

    An existing file is continued with its own columns, without an unfinished line of a killed writer, and without rows
    whose `step_column` is above `resumed_step` (None keeps all). Raises ValueError for a file of another kind.
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
        """Last row at the time of opening, by column; empty for a new file."""
        self._file = AppendedFile(path)

    def append(self, values: Mapping[str, float]) -> None:
        """Append one row; values of unknown columns are ignored. Raises OSError."""
        cells = (str(values.get(column, math.nan)) for column in self.columns)
        self._file.append((self._separator.join(cells) + "\n").encode())

    def widen(self, columns: Sequence[str]) -> None:
        """Add columns at the end, with nan in the former rows: the file is rewritten, whole or not at all.

        Raises ValueError for names that would break the table, and OSError; the table then stays unchanged.
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
        self._file.close()

    def _rows_to_keep(self, step_column: str, last_step: float) -> list[str]:
        """Read the header and the whole rows up to `last_step`; nothing without a whole header."""
        with _continuing(self.path) as whole:
            header, rows = whole[:1], whole[1:]
            step = header[0].rstrip("\n").split(self._separator).index(step_column) if header else 0
            return header + [row for row in rows if float(row.split(self._separator)[step]) <= last_step]


def _distinct(columns: Sequence[str]) -> list[str]:
    wrong = [column for column in columns if not COLUMN.fullmatch(column)]
    if wrong or len(set(columns)) < len(columns):
        raise ValueError(f"columns must be distinct names of letters, digits and _ . / -, not {wrong or list(columns)}")
    return list(columns)


class CsvSink(Table):
    """A comma-separated table with a growing header: a quantity that first appears during a run (for instance a loss)
    becomes a new last column, with nan in the former rows."""

    def __init__(self, path: Path, *, resumed_env_step: int | None = None) -> None:
        """Open the file; existing rows stay, except those beyond `resumed_env_step`. Raises ValueError, OSError."""
        super().__init__(path, _FIRST_COLUMNS, separator=",", step_column="env_step", resumed_step=resumed_env_step)

    def row(self, record: Mapping[str, float]) -> None:
        """Append a row. Raises ValueError for a name that no column can have, OSError."""
        if new := [name for name in record if name not in self.columns]:
            self.widen(new)
        self.append(record)


class JsonLinesSink:
    """Writes a JSON object per line; null for values that are not finite."""

    def __init__(self, path: Path, *, resumed_env_step: int | None = None) -> None:
        """Open the file; continue an existing file without torn lines and lines beyond `resumed_env_step`. Raises
        ValueError for a file of another kind, OSError."""
        self.path = path
        last_step = math.inf if resumed_env_step is None else resumed_env_step
        with _continuing(path) as whole:
            kept = [line for line in whole if _env_step(line) <= last_step]
        write_text(path, "".join(kept), durable=True)
        self._file = AppendedFile(path)

    def row(self, record: Mapping[str, float]) -> None:
        """Append a line. Raises OSError."""
        values = {name: value if math.isfinite(value) else None for name, value in record.items()}
        self._file.append((json.dumps(values) + "\n").encode())

    def close(self) -> None:
        self._file.close()


@contextmanager
def _continuing(path: Path) -> Generator[list[str]]:
    """Yield the whole lines of a file, none of a missing file. Raises ValueError if the body cannot read them."""
    text = read_bounded(path, most_bytes=_MOST_BYTES).decode("utf-8") if os.path.lexists(path) else ""
    try:
        yield [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise ValueError(f"{path} cannot be continued ({error}): correct it, or move it away") from None


def _env_step(line: str) -> float:
    return float(cast("dict[str, Any]", json_of(line))["env_step"])
