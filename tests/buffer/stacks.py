"""Image columns for tests: chunks as they are stored, and the naive way to read them."""

from __future__ import annotations

import numpy as np

from remuda.buffer.chunk import Columns
from remuda.buffer.frames import FRAMES, index_name, stacks_name


def image_columns(
    rows: int, *, frames: int = 12, seed: int = 0, depth: int = 4, side: int = 3, first_row: int = 0
) -> Columns:
    """Stacks of `depth` frames of side x side pixels, drawn at random from `frames` of them, and each row's id."""
    rng = np.random.default_rng((seed, first_row))
    return {
        FRAMES: rng.integers(0, 256, (frames, side, side), dtype=np.uint8),
        index_name("obs"): rng.integers(0, frames, (rows, depth), dtype=np.int32),
        index_name("next_obs"): rng.integers(0, frames, (rows, depth), dtype=np.int32),
        "id": np.arange(first_row, first_row + rows),
    }


def unstacked(columns: Columns) -> Columns:
    """Build up every stack of a chunk from its frames."""
    built: Columns = {}
    for name, column in columns.items():
        stacks = stacks_name(name)
        if stacks is not None:
            built[stacks] = columns[FRAMES].take(np.asarray(column, np.int32), axis=0)
        elif name != FRAMES:
            built[name] = column
    return built
