"""Reading progress.txt: of finished runs, of running ones, and of other programs that write the same table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from remuda.plotting.errors import PlotError

FloatArray = NDArray[np.float64]


def read_progress(path: Path) -> Mapping[str, FloatArray]:
    """The columns, each with one float64 per row; nan where a cell holds no number.

    A last line that has no end yet is one that is being written, and is left out. Raises PlotError for a file that is
    no such table.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlotError(f"{path} cannot be read: {error}") from None
    header, *rows = text[: text.rfind("\n") + 1].splitlines() or [""]
    names = header.split("\t")
    if not header or len(set(names)) < len(names):
        raise PlotError(f"{path} is no table: its first line must name the columns, each once, with tabs between")
    cells = [row.split("\t") for row in rows]
    for number, row in enumerate(cells, start=2):
        if len(row) != len(names):
            raise PlotError(f"{path}:{number}: {len(row)} cells under {len(names)} columns; mend the line or remove it")
    return {name: np.array([_number(row[at]) for row in cells], np.float64) for at, name in enumerate(names)}


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:  # empty, or the name of something
        return math.nan
