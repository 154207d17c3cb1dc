"""A sum tree: all values lie end to end on a line, and it finds the slot that a point on the line belongs to.

The tree is compiled. If Remuda was installed without a C compiler, a numpy tree with the same slots and sums, equal bit
for bit, is used; prioritized batches then take two to four times as long.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol

import numpy as np
import numpy.typing as npt

COMPILED = find_spec("remuda.buffer._sum_tree") is not None
"""True if the tree in C exists here: prioritized replay runs at full speed."""

Slots = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

_TOP_NODES = 4096
"""A level this narrow is searched by its cumulative sums instead of walked, unless it is in the middle of an eight.

Measured with 10^6 slots on a 2-core machine, microseconds for batches of 256 and 16 x 256 (find; set):
binary to the root 62; 104 and 217; 333; binary under 1024 cumulative sums 33; 41 and 155; 185 (512 to 4096 alike);
blocks of 32 searched by cumsum 98; 28 and 1330; 200; blocks of 128 290; 30 and 4800; 300. Blocks of 16 searched by a
product with a triangular matrix are 30 % faster for one batch and 30 % slower for 16.
"""

_LEVELS_PER_STEP = 3
"""The tree in C keeps every third level, and the highest of both must be the same."""

_FEW = 16
"""If more than one in this number of slots has changed, all sums are recomputed."""


class SumTree(Protocol):
    """Sums of non-negative values over slots 0 … capacity - 1. Every operation takes whole arrays, int64 or float64.

    Sums are always computed from their parts and never adjusted by differences, so they do not drift with changes.
    """

    @property
    def total(self) -> float:
        """The sum of all values."""
        ...

    def set(self, slots: Slots, values: Values | float) -> None:
        """Give each of `slots` its value (or all the same value); for a repeated slot, the last wins.

        Raises IndexError for a slot outside the tree and ValueError for values that are not finite or negative; nothing
        has changed then.
        """
        ...

    def get(self, slots: Slots) -> Values:
        """Return the values of `slots`, in the shape of `slots`. Raises IndexError."""
        ...

    def find(self, points: Values) -> tuple[Slots, Values]:
        """Return the slot and its value for each point in [0, total), in the shape of `points`.

        Slot s covers [sum before s, this sum + value of s), so only slots with a positive value are ever returned;
        points beyond the end fall on the last of them. Sorted points are faster. Raises ValueError for points that are
        negative or nan, and if the total is 0 or beyond the largest float.
        """
        ...

    def draw(self, shares: Values) -> tuple[Slots, Values]:
        """Cut the line into as many equal parts as `shares` [..., parts], each in [0, 1), has columns, and return the
        slot at every share of its part, and the slot's share of the total, in the shape of `shares`.

        Raises ValueError as `find` does.
        """
        ...


def new_sum_tree(capacity: int) -> SumTree:
    """Return a tree whose values are all zero. Raises ValueError for a capacity below 1."""
    return CompiledSumTree(capacity) if COMPILED else NumpySumTree(capacity)


class NumpySumTree:
    """A SumTree in numpy: binary levels with cumulative sums on top.

    Sums are recomputed at the next search: several chunks may come in between two draws, and recomputing after each
    would update every level each time.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a sum tree needs at least one slot, not {capacity}")
        self.capacity = capacity
        width = 1 << (capacity - 1).bit_length()
        self._levels: list[Values] = [np.zeros(width)]
        while width > _TOP_NODES:
            for _ in range(_LEVELS_PER_STEP):
                width //= 2
                self._levels.append(np.zeros(width))
        self._changed: list[Slots] = []  # parents of the leaves whose changes have not gone up yet
        self._changed_slots = 0
        self._starts: Values | None = None

    def set(self, slots: Slots, values: Values | float) -> None:
        """Give each of `slots` its value, or all the same value."""
        self._check_slots(slots)
        if not np.all((np.asarray(values) >= 0) & np.isfinite(values)):
            raise ValueError("values must be finite and not negative")
        self._levels[0][slots] = values
        self._starts = None
        self._changed_slots += len(slots)
        if not self._most_changed:
            self._changed.append(slots >> 1)

    def get(self, slots: Slots) -> Values:
        """Return the values of `slots`, in the shape of `slots`."""
        self._check_slots(slots)
        return self._levels[0].take(slots)

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self._cumulative()[-1])

    def find(self, points: Values) -> tuple[Slots, Values]:
        """Return the slot at every point, and its value."""
        starts = self._cumulative()
        if not 0 < starts[-1] < np.inf:
            raise ValueError("a sum tree whose sum is 0 or infinite cannot be searched")
        if not (points >= 0).all():
            raise ValueError("points must not be negative")
        points = np.minimum(points, np.nextafter(starts[-1], 0.0))
        nodes = starts.searchsorted(points, side="right") - 1
        points -= starts.take(nodes)
        for level in self._levels[-2::-1]:
            nodes <<= 1
            left = level.take(nodes)
            right = points >= left
            left *= right
            points -= left
            nodes += right
        return self._off_empty_leaves(nodes)

    def draw(self, shares: Values) -> tuple[Slots, Values]:
        """Return the slot at every share of a part of the line, and the slot's share of the total."""
        parts: int = shares.shape[-1]
        points = (np.arange(parts) + shares) * (self.total / parts)
        slots, values = self.find(points)
        return slots, values / self.total

    def _check_slots(self, slots: Slots) -> None:
        if slots.size and not 0 <= slots.min() <= slots.max() < self.capacity:
            raise IndexError(f"slots {slots.min()} to {slots.max()} of a sum tree of {self.capacity}")

    def _cumulative(self) -> Values:
        """Return the start of each top node on the line, and the total as last entry. Recomputed
        once after a change."""
        if self._starts is None:
            self._carry_up()
            top = self._levels[-1]
            self._starts = np.zeros(len(top) + 1)
            np.cumsum(top, out=self._starts[1:])
        return self._starts

    @property
    def _most_changed(self) -> bool:
        """True if summing everything is cheaper than finding the changed sums."""
        return self._changed_slots > len(self._levels[0]) // _FEW

    def _carry_up(self) -> None:
        """Recompute the sums over changed slots."""
        above = zip(self._levels, self._levels[1:], strict=False)
        if self._most_changed:
            for below, level in above:
                np.add(below[0::2], below[1::2], out=level)
        elif self._changed:
            nodes = self._changed[0] if len(self._changed) == 1 else np.concatenate(self._changed)
            in_runs = True
            for below, level in above:
                if in_runs:  # rows of one chunk; rows that were drawn are rarely neighbours, at no level but the last
                    before, nodes = len(nodes), _without_neighbours_alike(nodes)
                    in_runs = len(nodes) < 0.75 * before
                children = below.reshape(-1, 2).take(nodes, axis=0)
                level[nodes] = children[:, 0] + children[:, 1]
                nodes = nodes >> 1
        self._changed.clear()
        self._changed_slots = 0

    def _off_empty_leaves(self, slots: Slots) -> tuple[Slots, Values]:
        """Move points beyond the end of a node, due to rounding, back to the last slot with a value."""
        leaves = self._levels[0]
        values = leaves.take(slots)
        for place in np.argwhere(values <= 0):
            index = tuple(place)
            slots[index] = np.flatnonzero(leaves[: slots[index]])[-1]
            values[index] = leaves[slots[index]]
        return slots, values


def _without_neighbours_alike(nodes: Slots) -> Slots:
    """Drop entries equal to the previous entry: all repeats of a sorted batch or a run of slots, at no sorting cost."""
    if len(nodes) < 2:
        return nodes
    keep = np.empty(len(nodes), np.bool_)
    keep[0] = True
    np.not_equal(nodes[1:], nodes[:-1], out=keep[1:])
    return nodes[keep]


class CompiledSumTree:
    """The SumTree of _sum_tree.c. Sums are updated at once, since a later update costs about as much."""

    def __init__(self, capacity: int) -> None:
        from remuda.buffer._sum_tree import SumTree as CompiledTree

        self._tree = CompiledTree(capacity)

    @property
    def total(self) -> float:
        """The sum of all values."""
        return self._tree.total

    def set(self, slots: Slots, values: Values | float) -> None:
        """Give each of `slots` its value, or all the same value."""
        self._tree.set(np.ascontiguousarray(slots), np.ascontiguousarray(values, np.float64))

    def get(self, slots: Slots) -> Values:
        """Return the values of `slots`, in the shape of `slots`."""
        return np.frombuffer(self._tree.get(np.ascontiguousarray(slots))).reshape(slots.shape)

    def find(self, points: Values) -> tuple[Slots, Values]:
        """Return the slot at every point, and its value."""
        return _arrays(self._tree.find(np.ascontiguousarray(points)), points.shape)

    def draw(self, shares: Values) -> tuple[Slots, Values]:
        """Return the slot at every share of a part of the line, and the slot's share of the total."""
        return _arrays(self._tree.draw(np.ascontiguousarray(shares)), shares.shape)


def _arrays(found: tuple[bytearray, bytearray], shape: tuple[int, ...]) -> tuple[Slots, Values]:
    slots, values = found
    return np.ndarray(shape, np.int64, slots), np.ndarray(shape, np.float64, values)
