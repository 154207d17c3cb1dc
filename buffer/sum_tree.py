"""A sum tree: all values lie end to end on a line, and it finds the slot that a point on the line belongs to.

The tree is compiled. If Remuda was installed without a C compiler, a numpy tree with the same slots and sums, equal bit
for bit, is used; prioritized batches then take two to four times as long.
"""

from __future__ import annotations

from typing import Protocol

from remuda.buffer.numpy_sum_tree import NumpySumTree, Slots, Values

__all__ = ["COMPILED", "Slots", "SumTree", "Values", "new_sum_tree"]


class SumTree(Protocol):
    """Sums of non-negative values over slots 0 … capacity - 1. Every operation takes whole arrays, int64 or float64.

    Sums are always computed from their parts and never adjusted by differences, so they do not drift however often
    values change.
    """

    @property
    def total(self) -> float:
        """The sum of all values."""
        ...

    def set(self, slots: Slots, values: Values | float) -> None:
        """Give each of `slots` its value (or all of them one); where a slot occurs twice, the last wins.

        Raises IndexError for a slot that the tree does not have and ValueError for values that are not finite or
        negative; nothing has changed then.
        """
        ...

    def get(self, slots: Slots) -> Values:
        """Return the values of `slots`, in the shape of `slots`. Raises IndexError."""
        ...

    def find(self, points: Values) -> tuple[Slots, Values]:
        """Return for each point in [0, total) the slot it falls on, and that slot's value, in the shape of `points`.

        Slot s covers [sum before s, that + value of s), so only slots with a positive value are ever returned; points
        beyond the end fall on the last of them. Sorted points are faster. Raises ValueError for points that are
        negative or nan, and when the total is 0 or beyond the largest float.
        """
        ...

    def draw(self, shares: Values) -> tuple[Slots, Values]:
        """Cut the line into as many equal parts as `shares` [..., parts], each in [0, 1), has columns, and return the
        slot at each share of its part, and that slot's share of the total, in the shape of `shares`.

        Raises ValueError as `find` does.
        """
        ...


_tree: type[NumpySumTree] | type[CompiledSumTree]
try:
    from remuda.buffer.compiled_sum_tree import CompiledSumTree
except ImportError:
    _tree = NumpySumTree
else:
    _tree = CompiledSumTree

COMPILED = _tree is not NumpySumTree
"""Whether prioritized replay runs at full speed here."""


def new_sum_tree(capacity: int) -> SumTree:
    """Return a tree whose values are all zero. Raises ValueError for a capacity below 1."""
    return _tree(capacity)
