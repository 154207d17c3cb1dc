"""From a chunk's stored columns to those that are computed again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from remuda.buffer.chunk import Column, Columns
from remuda.buffer.ring import ColumnRing
from remuda.policy.base import Reanalyzer

ROWS_AT_ONCE = 256
"""Rows that are computed together: enough for a processor, and few enough that progress shows."""


def recompute(
    columns: Mapping[str, Column], names: Sequence[str], reanalyzer: Reanalyzer, *, progress: Callable[[int], None]
) -> Columns:
    """Compute the columns `names` of all rows of a chunk again, each whole.

    Args:
        columns: as they lie in the payload file; images may be stored as frames and indices.
        names: the declared ones.
        reanalyzer: with weights.
        progress: called with a number of rows whenever these are done.

    Raises:
        ValueError: the algorithm returned other columns, or of another shape or dtype.
    """
    rows = len(columns[names[0]])
    ring = ColumnRing(max(rows, 1))
    ring.write(0, dict(columns))
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for start in range(0, rows, ROWS_AT_ONCE):
        stored = ring.gather(np.arange(start, min(start + ROWS_AT_ONCE, rows)))
        found = reanalyzer.compute(stored)
        for name in names:
            if name not in found or found[name].shape != stored[name].shape or found[name].dtype != stored[name].dtype:
                raise ValueError(f"Reanalyzer.compute returned no column {name!r} of the shape and dtype that it had")
            parts[name].append(found[name])
        progress(len(stored[names[0]]))
    return {name: np.concatenate(part) for name, part in parts.items()}
