"""From arrays to lists that JSON can hold: what is not finite becomes null."""

from __future__ import annotations

import math

import numpy as np

from remuda.page.pyramid import FloatArray


def listed(values: FloatArray) -> list[float | None]:
    """A float64 [n] as a list; nan and infinities are None."""
    found: list[float | None] = values.tolist()
    for at in np.flatnonzero(~np.isfinite(values)).tolist():
        found[at] = None
    return found


def finite(value: float | None) -> float | None:
    """The number; None if there is none, or if it is not finite."""
    return value if value is not None and math.isfinite(value) else None
