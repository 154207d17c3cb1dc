"""The table of a replay index with data about each row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_SLOT = np.dtype([("end_row", np.int64), ("uses", np.int64), ("policy_iter", np.int64), ("priority", np.float64)])
_CACHE_LINE_BYTES = 64

DEAD = 0
"""Stands in place of `end_row` if the slot holds no live row."""


class SlotTable:
    """Data about the row in each slot, [capacity]; all slots are empty at first.

    Rows are drawn from all over the memory, and each look into it costs as much as the following computation. So the
    columns lie side by side, and no slot crosses a line of the cache. Everything is zero at first, and the system
    provides memory only at the first write: a large capacity costs nothing before use.
    """

    def __init__(self, capacity: int) -> None:
        memory = np.zeros(capacity * _SLOT.itemsize + _CACHE_LINE_BYTES, np.uint8)
        start = -memory.ctypes.data % _CACHE_LINE_BYTES
        self._slots = memory[start : start + capacity * _SLOT.itemsize].view(_SLOT)
        self.end_row: npt.NDArray[np.int64] = self._slots["end_row"]
        """Row id plus one."""
        self.uses: npt.NDArray[np.int64] = self._slots["uses"]
        """Number of draws."""
        self.policy_iter: npt.NDArray[np.int64] = self._slots["policy_iter"]
        """Updates before the collecting policy."""
        self.priority: npt.NDArray[np.float64] = self._slots["priority"]

    def take(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
        """Return a copy of the data of `slots`, in their shape, with the columns as fields."""
        return self._slots.take(slots)
