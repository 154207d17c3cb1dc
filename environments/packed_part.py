"""Positions of the parts of a structured observation in a row of bytes. Imports no gymnasium."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PackedPart:
    """Position of one array of an observation in its row of bytes."""

    name: str
    """Keys and positions from the outside in, joined by dots: `image`, `goal.position`, `0`."""
    offset: int
    """In bytes."""
    shape: tuple[int, ...]
    dtype: str
    """numpy's name of the packed dtype: float64 is packed as float32."""
    low: float | None = None
    """Least value of any entry; None if an entry is unbounded."""
    high: float | None = None
    counts: tuple[int, ...] = ()
    """Number of values of each entry, for integers counted from `starts`; empty for other numbers."""
    starts: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Length in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def of(self, rows: np.ndarray) -> np.ndarray:
        """Take the part out of rows uint8 [n, bytes]: [n, *shape]."""
        own = np.ascontiguousarray(rows[:, self.offset : self.offset + self.bytes])
        return own.view(self.dtype).reshape(len(rows), *self.shape)
