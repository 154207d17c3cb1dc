"""Where the parts of a structured observation lie in a row of bytes. Imports no gymnasium."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PackedPart:
    """Where one array of an observation lies in its row of bytes."""

    name: str
    """Keys and positions from the outside in, joined by dots: `image`, `goal.position`, `0`."""
    offset: int
    """In bytes."""
    shape: tuple[int, ...]
    dtype: str
    """numpy's name, as it is packed: float64 is packed as float32."""
    low: float | None = None
    """Least value any entry may take; None where some entry is unbounded."""
    high: float | None = None
    counts: tuple[int, ...] = ()
    """Number of values of each entry, for integers that count from `starts`; empty for other numbers."""
    starts: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Its length."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def of(self, rows: np.ndarray) -> np.ndarray:
        """Take it out of rows uint8 [n, bytes]: [n, *shape]."""
        own = np.ascontiguousarray(rows[:, self.offset : self.offset + self.bytes])
        return own.view(self.dtype).reshape(len(rows), *self.shape)
