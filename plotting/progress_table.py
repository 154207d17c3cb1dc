"""Reading progress.txt of finished and running runs, and of other programs that write the same table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from remuda.plotting.errors import PlotError
from remuda.storage.untrusted import read_bounded

FloatArray = NDArray[np.float64]
_MOST_BYTES = 512 << 20


def read_progress(path: Path) -> Mapping[str, FloatArray]:
    """The columns, each with one float64 per row; nan if a cell is not a number.

    A last line without an end is still being written, and is left out. Raises PlotError for a file that is not such a
    table.
    """
    try:
        text = read_bounded(path, most_bytes=_MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlotError(f"{path} cannot be read: {error}") from None
    header, *rows = text[: text.rfind("\n") + 1].splitlines() or [""]
    names = header.split("\t")
    if not header or len(set(names)) < len(names):
        raise PlotError(f"{path} is not a table: its first line must name each column once, separated by tabs")
    cells = [row.split("\t") for row in rows]
    for number, row in enumerate(cells, start=2):
        if len(row) != len(names):
            raise PlotError(f"{path}:{number}: {len(row)} cells for {len(names)} columns; correct or remove the line")
    return {name: np.array([_number(row[at]) for row in cells], np.float64) for at, name in enumerate(names)}


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:  # empty, or the name of something
        return math.nan
