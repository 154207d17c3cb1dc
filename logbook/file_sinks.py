"""Sinks in files of the run folder: progress.csv and progress.jsonl."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from remuda.logbook.growing_table import Table
from remuda.storage.appended import AppendedFile
from remuda.storage.atomic import write_text
from remuda.storage.untrusted import json_of, read_bounded

_MOST_BYTES = 1 << 30
"""Of a progress.jsonl that is continued."""
_FIRST_COLUMNS = ("env_step", "train_iter", "episode", "wall_s")


class CsvSink:
    """A comma-separated table whose header grows: a quantity that first appears during a run (for instance a loss)
    becomes a new last column, with nan in the rows before."""

    def __init__(self, path: Path, *, resumed_env_step: int | None = None) -> None:
        """Goes on with a file that is there, without its rows beyond `resumed_env_step`. Raises ValueError, OSError."""
        self.path = path
        self._table = Table(path, _FIRST_COLUMNS, separator=",", step_column="env_step", resumed_step=resumed_env_step)

    def row(self, record: Mapping[str, float]) -> None:
        """Append a row. Raises ValueError for a name that no column can have, OSError."""
        new = [name for name in record if name not in self._table.columns]
        if new:
            self._table.widen(new)
        self._table.append(record)

    def close(self) -> None:
        """Close the file."""
        self._table.close()


class JsonLinesSink:
    """A JSON object per line; null where there is no number."""

    def __init__(self, path: Path, *, resumed_env_step: int | None = None) -> None:
        """Goes on with a file that is there, without its lines beyond `resumed_env_step`, or torn. Raises ValueError
        for a file that is something else, OSError."""
        self.path = path
        kept = _lines_to_keep(path, math.inf if resumed_env_step is None else resumed_env_step)
        write_text(path, "".join(kept), durable=True)
        self._file = AppendedFile(path)

    def row(self, record: Mapping[str, float]) -> None:
        """Append a line. Raises OSError."""
        values = {name: value if math.isfinite(value) else None for name, value in record.items()}
        self._file.append((json.dumps(values) + "\n").encode())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _lines_to_keep(path: Path, last_env_step: float) -> list[str]:
    if not os.path.lexists(path):
        return []
    text = read_bounded(path, most_bytes=_MOST_BYTES).decode("utf-8")
    lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    try:
        return [line for line in lines if _env_step(line) <= last_env_step]
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ValueError(f"{path} cannot be continued ({error}): correct it, or move it away") from None


def _env_step(line: str) -> float:
    return float(cast("dict[str, Any]", json_of(line))["env_step"])
