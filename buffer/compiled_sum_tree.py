"""The sum tree in C, which prioritized replay uses if Remuda was installed on a machine with a C compiler."""

from __future__ import annotations

import numpy as np

from remuda.buffer._sum_tree import SumTree
from remuda.buffer.numpy_sum_tree import Slots, Values


class CompiledSumTree:
    """See remuda.buffer.sum_tree. Sums are updated at once, since that costs about as much as doing it later."""

    def __init__(self, capacity: int) -> None:
        self._tree = SumTree(capacity)

    @property
    def total(self) -> float:
        """The sum of all values."""
        return self._tree.total

    def set(self, slots: Slots, values: Values | float) -> None:
        """Give each of `slots` its value, or all of them one."""
        self._tree.set(np.ascontiguousarray(slots), np.ascontiguousarray(values, np.float64))

    def get(self, slots: Slots) -> Values:
        """Return the values of `slots`, in the shape of `slots`."""
        return np.frombuffer(self._tree.get(np.ascontiguousarray(slots))).reshape(slots.shape)

    def find(self, points: Values) -> tuple[Slots, Values]:
        """Return the slot each point falls on, and its value."""
        return _arrays(self._tree.find(np.ascontiguousarray(points)), points.shape)

    def draw(self, shares: Values) -> tuple[Slots, Values]:
        """Return the slot at each share of its part of the line, and that slot's share of the total."""
        return _arrays(self._tree.draw(np.ascontiguousarray(shares)), shares.shape)


def _arrays(found: tuple[bytearray, bytearray], shape: tuple[int, ...]) -> tuple[Slots, Values]:
    slots, values = found
    return np.ndarray(shape, np.int64, slots), np.ndarray(shape, np.float64, values)
