"""Samplers, which choose the rows of a batch, and the table with data about each row."""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

import numpy as np
import numpy.typing as npt

from remuda.buffer.sum_tree import Slots, Values, new_sum_tree

UNLIMITED_ROWS = 2**53
"""Stands for any number of rows; the largest count in a message."""
_SLOT = np.dtype([("end_row", np.int64), ("uses", np.int64), ("policy_iter", np.int64), ("priority", np.float64)])
_CACHE_LINE_BYTES = 64

DEAD = 0
"""Stands in place of `end_row` if the slot holds no live row."""


class Sampler(Protocol):
    """Draws among the live slots of a replay index. The index reports every filled and every freed slot."""

    @property
    def drawable_rows(self) -> int:
        """Number of rows that may be drawn now."""
        ...

    def on_insert(self, slots: Slots) -> None:
        """Add `slots` with new rows, oldest first: different slots, all of them free."""
        ...

    def on_evict(self, slots: Slots) -> None:
        """Remove `slots`, all of them live, and none twice."""
        ...

    def sample(self, batches: int, batch_size: int, rng: np.random.Generator) -> tuple[Slots, Values]:
        """Return slots int64 [batches, batch_size] and the probability of each, float64 of the same shape.

        Raises ValueError for too few rows.
        """
        ...

    def update(self, slots: Slots, priorities: npt.NDArray[np.floating]) -> None:
        """Note the learner's errors float [n] on live `slots` int64 [n]."""
        ...

    def keep_priorities_in(self, priorities: Values) -> None:
        """Keep the priority of every slot in this array [capacity], as from the learner, before exponent and offset.

        Called once, before the first row.
        """
        ...


class _KeepsPriorities:
    """Base of samplers: counts live rows, and keeps priorities in the array of the index."""

    def __init__(self) -> None:
        self._priorities: Values = np.zeros(0)
        self._rows = 0

    @property
    def drawable_rows(self) -> int:
        """No limit after the first row."""
        return UNLIMITED_ROWS if self._rows else 0

    def keep_priorities_in(self, priorities: Values) -> None:
        """See Sampler."""
        self._priorities = priorities

    def update(self, slots: Slots, priorities: npt.NDArray[np.floating]) -> None:
        """See Sampler. Priorities change nothing here."""


class UniformSampler(_KeepsPriorities):
    """Draws every live row with the same probability, with replacement."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._priorities = np.zeros(capacity)
        # The live slots, packed, and the position of each in there plus one (0: not live): O(1) despite gaps.
        self._live: Slots = np.empty(capacity, np.int64)
        self._end: Slots = np.zeros(capacity, np.int64)

    def on_insert(self, slots: Slots) -> None:
        """Append `slots` to the live slots."""
        end = self._rows + len(slots)
        self._priorities[slots] = 1.0
        self._live[self._rows : end] = slots
        self._end[slots] = np.arange(self._rows, end) + 1
        self._rows = end

    def on_evict(self, slots: Slots) -> None:
        """Take `slots` out and fill the holes with slots from the end."""
        end = self._rows - len(slots)
        positions = self._end[slots] - 1
        self._end[slots] = 0
        tail = self._live[end : self._rows]
        movers = tail[self._end[tail] > 0]
        holes = positions[positions < end]
        self._live[holes] = movers
        self._end[movers] = holes + 1
        self._rows = end

    def sample(self, batches: int, batch_size: int, rng: np.random.Generator) -> tuple[Slots, Values]:
        """Draw with replacement; see Sampler."""
        if not self._rows:
            raise ValueError("there is no row to sample")
        slots = self._live.take(rng.integers(self._rows, size=(batches, batch_size)))
        return slots, np.full(slots.shape, 1.0 / self._rows)


class PrioritizedSampler(_KeepsPriorities):
    """Draws a row with probability proportional to (|priority| + epsilon)^alpha (Schaul et al. 2016, proportional).

    New rows get the largest priority so far, for an early first draw. A batch is stratified: the line of all
    probabilities is cut into batch_size equal parts, with one random point in each.
    """

    def __init__(self, capacity: int, alpha: float, epsilon: float = 1e-6) -> None:
        if not 0 <= alpha <= 1 or not epsilon > 0:
            raise ValueError(f"alpha must be in [0, 1] and epsilon positive, not {alpha} and {epsilon}")
        super().__init__()
        self._alpha = alpha
        self._epsilon = epsilon
        self._tree = new_sum_tree(capacity)
        self._priorities = np.zeros(capacity)
        self._largest = 1.0

    def on_insert(self, slots: Slots) -> None:
        """Give `slots` the largest priority seen."""
        self._priorities[slots] = self._largest
        self._tree.set(slots, (self._largest + self._epsilon) ** self._alpha)
        self._rows += len(slots)

    def on_evict(self, slots: Slots) -> None:
        """Take the probability of `slots` away."""
        self._tree.set(slots, 0.0)
        self._rows -= len(slots)

    def sample(self, batches: int, batch_size: int, rng: np.random.Generator) -> tuple[Slots, Values]:
        """Draw one row per stratum and batch; see Sampler."""
        if not self._rows:
            raise ValueError("there is no row to sample")
        return self._tree.draw(rng.random((batches, batch_size)))

    def update(self, slots: Slots, priorities: npt.NDArray[np.floating]) -> None:
        """Set the priorities of `slots`; for a repeated slot, the last wins. Refuses priorities that are not finite."""
        sizes = np.abs(priorities, dtype=np.float64)
        largest = float(sizes.max(initial=0.0))
        if not math.isfinite(largest):  # nan is larger than any number here
            finite = np.isfinite(sizes)
            slots, sizes = slots[finite], sizes[finite]
            largest = float(sizes.max(initial=0.0))
        self._largest = max(self._largest, largest)
        self._priorities[slots] = sizes
        self._tree.set(slots, (sizes + self._epsilon) ** self._alpha)


class FifoSampler(_KeepsPriorities):
    """Hands out each row once, in order of arrival, for on-policy learners."""

    def __init__(self) -> None:
        super().__init__()
        self._queue: deque[Slots] = deque()

    @property
    def drawable_rows(self) -> int:
        """Number of rows without a draw."""
        return self._rows

    def on_insert(self, slots: Slots) -> None:
        """Queue `slots`."""
        if len(self._priorities):
            self._priorities[slots] = 1.0
        self._queue.append(slots)
        self._rows += len(slots)

    def on_evict(self, slots: Slots) -> None:
        """Forget the undrawn rows of `slots`."""
        queued = self._take_all()
        self.on_insert(queued[np.isin(queued, slots, invert=True)])

    def sample(self, batches: int, batch_size: int, rng: np.random.Generator) -> tuple[Slots, Values]:
        """Take the oldest rows, batch after batch; nothing is random. See Sampler."""
        wanted = batches * batch_size
        if wanted > self._rows:
            raise ValueError(f"{wanted} rows were asked for and {self._rows} are left")
        queued = self._take_all()
        self.on_insert(queued[wanted:])
        slots = queued[:wanted].reshape(batches, batch_size)
        return slots, np.full(slots.shape, 1.0 / max(1, wanted))

    def _take_all(self) -> Slots:
        queued = np.concatenate([*self._queue, np.empty(0, np.int64)])
        self._queue.clear()
        self._rows = 0
        return queued


def importance_beta(start: float, anneal_iters: int, train_iter: int) -> float:
    """The exponent of the importance weights (Schaul et al. 2016, section 3.4): rises linearly from `start` to 1."""
    done = min(train_iter / anneal_iters, 1.0)
    return (1.0 - done) * start + done  # exact at both ends, unlike start + done * (1.0 - start)


def importance_weights(probabilities: Values, beta: float) -> npt.NDArray[np.float32]:
    """Undo the bias of drawing with `probabilities`: (rows * p)^-beta, over the largest of these in every batch, which
    belongs to the least likely row; the number of rows cancels out.

    `probabilities` float64 [batches, batch_size], each above 0; `beta` in [0, 1], 0 undoes nothing (all weights 1) and
    1 everything (Schaul et al. 2016, section 3.4). Returns float32 of the same shape.
    """
    weights: Values = (probabilities / probabilities.min(axis=-1, keepdims=True)) ** -beta
    return weights.astype(np.float32)


class SlotTable:
    """Data about the row in every slot, [capacity]; all slots are empty at first.

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
