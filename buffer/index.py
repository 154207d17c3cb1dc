"""The replay index: live rows and their sampling."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from remuda.buffer.limiter import Limiter
from remuda.buffer.payload_files import PayloadFiles, end_row
from remuda.buffer.samplers import DEAD, Sampler, SlotTable, importance_weights
from remuda.wire.messages import ChunkMeta, IndexedChunk, PolicyRef

Rows = npt.NDArray[np.int64]


class ChunkTooLargeError(ValueError):
    """A chunk beyond the capacity or the quota."""


class NotEnoughRowsError(ValueError):
    """More rows were requested than `sampleable_rows` permits now."""


class InsertResult(Struct, frozen=True):
    """First row of a chunk, and payload files that may be deleted because of the chunk."""

    first_row: int
    deletable: list[str]


@dataclass(frozen=True)
class SampledRows:
    """Batches, each array [batches, batch_size]."""

    rows: Rows
    weights: npt.NDArray[np.float32]
    """Importance weights, largest 1 in every batch."""
    uses: Rows
    """Number of draws of each row, including these batches."""
    priorities: npt.NDArray[np.float64]
    staleness: Rows
    """Gradient updates since the policy that collected the row."""


@dataclass(frozen=True)
class Prioritized:
    """Priorities from the learner, float32 [n], of the rows `first_row`, `first_row` + 1 …; nan for rows that are not
    live."""

    first_row: int
    priorities: npt.NDArray[np.float32]


class ReplayIndex:
    """Metadata of all experience: row ids, priorities, use counts, and needed payload files.

    Row ids count up from 0 over the whole run and are never reused; a row's slot is its id modulo the capacity. Rows
    are evicted one by one, oldest first, when newer rows need their slots, and by whole chunks when the payload files
    leave no room within `quota_bytes` for files in preparation. PayloadFiles decides when a file may be deleted.

    Opens no file and reads no clock. A restarted coordinator makes a new index and calls `restore` with the live
    chunks.
    """

    def __init__(
        self,
        capacity: int,
        sampler: Sampler,
        *,
        limiter: Limiter,
        rng: np.random.Generator,
        quota_bytes: int,
        chunks_ahead: int = 0,
        on_retire: Callable[[IndexedChunk], None] = lambda chunk: None,
    ) -> None:
        """`chunks_ahead`: number of payload files that may be written before their insertion; `on_retire` is called
        with every chunk that loses its last live row."""
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity
        self._sampler = sampler
        self._limiter = limiter
        self._refilled_row = 0
        """Rows below come in, and no row is drawn, whatever the limiter says: before a restart, rows were lost."""
        self._rng = rng
        self._files = PayloadFiles(quota_bytes, chunks_ahead)
        self._on_retire = on_retire
        self._slots = SlotTable(capacity)
        sampler.keep_priorities_in(self._slots.priority)
        self._chunks: deque[IndexedChunk] = deque()  # with live rows, oldest first
        self._dropped_below = (-1, -1)
        """Epoch and version: chunks of older policies were dropped."""
        self._has_older = False
        """True if chunks of such policies have come since then."""
        self.next_row = 0
        """One above the newest row's id: the number of rows ever inserted."""
        self.first_live_row = 0
        """Every smaller row is evicted."""
        self.rows = 0
        """Live rows."""
        self.sampled_rows = 0
        self.removed_rows = 0

    # --- experience in --------------------------------------------------------------------------------------------

    def insert(self, meta: ChunkMeta) -> InsertResult:
        """Give the chunk's rows the next ids and make room for them. The caller has called `check_fits`.

        Never refuses because of the limiter: collected rows count.
        """
        chunk, end = IndexedChunk(first_row=self.next_row, meta=meta), self.next_row + meta.rows
        if not meta.rows:
            return InsertResult(chunk.first_row, [meta.file])
        deletable = self.consume(max(self.first_live_row, end - self.capacity))
        self.next_row = end
        self._admit(chunk, end)
        return InsertResult(chunk.first_row, deletable + self.make_room() if self._files.is_full else deletable)

    def check_fits(self, meta: ChunkMeta) -> None:
        """Raise ChunkTooLargeError if the chunk alone exceeds the capacity or the quota."""
        if meta.rows > self.capacity:
            raise ChunkTooLargeError(
                f"chunk {meta.file} has {meta.rows} rows and the buffer holds {self.capacity}: "
                "raise buffer.capacity or lower collector.chunk_env_steps"
            )
        if meta.payload_bytes > self._files.quota_bytes:
            raise ChunkTooLargeError(
                f"chunk {meta.file} has {meta.payload_bytes} bytes and data/ may hold {self._files.quota_bytes}: "
                "raise buffer.quota_bytes or lower collector.chunk_env_steps"
            )

    def insertable_rows(self) -> int:
        """Return the number of further rows that may come in.

        The limiter decides, once lost rows are replaced. The number is 0 while data/ has no room, which happens only
        if the learner is behind with loading; a learner that itself waits for rows does not hold rows back.
        """
        if self._files.is_full and self.sampleable_rows() >= self._limiter.request_rows:
            return 0
        missing = self._refilled_row - self.next_row
        return max(missing, self._limiter.insertable_rows(self.next_row, self.sampled_rows))

    def consume(self, below_row: int) -> list[str]:
        """Evict every row below `below_row` (used up, or too old) and return the files that may be deleted now.

        Raises ValueError if `below_row` is lower than before or beyond `next_row`.
        """
        if not self.first_live_row <= below_row <= self.next_row:
            raise ValueError(
                f"rows below {below_row} cannot be used up: live are {self.first_live_row} to {self.next_row - 1}"
            )
        self._kill(self.first_live_row, below_row)
        self.first_live_row = below_row
        deletable: list[str] = []
        while self._chunks:
            oldest = self._chunks[0]
            if oldest.first_row + oldest.meta.rows > below_row:
                break
            self._on_retire(self._chunks.popleft())
            deletable += self._files.retire(oldest)
        return deletable

    def drop_older_than(self, oldest: PolicyRef) -> tuple[int, list[str]]:
        """Evict every chunk that was collected by a policy before `oldest`.

        Returns the number of evicted live rows, and the files that may be deleted now.
        """
        rows, deletable = self.rows, list[str]()
        bound = (oldest.epoch, oldest.version)
        if bound <= self._dropped_below and not self._has_older:
            return 0, []
        self._dropped_below, self._has_older = max(bound, self._dropped_below), bound < self._dropped_below
        for chunk in [c for c in self._chunks if (c.meta.policy.epoch, c.meta.policy.version) < bound]:
            deletable += self._drop(chunk)
        return rows - self.rows, deletable

    def quarantine(self, file: str) -> list[str]:
        """Never draw a row of this unreadable payload file again; return the files that may be deleted now."""
        found = [chunk for chunk in self._chunks if chunk.meta.file == file]
        return self._drop(found[0]) if found else []

    def restore(self, chunks: Sequence[IndexedChunk], *, next_row: int, first_live_row: int) -> list[str]:
        """Restore the live chunks before a restart: `chunks` in row order, with gaps for dropped rows. Return the files
        that may be deleted now.

        Only for an empty index. If chunks are lost, so that fewer rows are left than came in before the first draw, as
        many come in again before the next: else a learner without rows and collectors without credit would wait for
        each other. Leaves out chunks beyond the capacity (if it was lowered), and rows below
        `first_live_row`.
        """
        self.next_row = next_row
        self.first_live_row = max(first_live_row, next_row - self.capacity)
        deletable: list[str] = []
        for chunk in chunks:
            if (end := end_row(chunk)) > self.first_live_row:
                self._admit(chunk, end)
            else:
                self._on_retire(chunk)
                deletable.append(chunk.meta.file)
        needed = min(self._limiter.min_rows, next_row - self.first_live_row)
        self._refilled_row = next_row + max(0, needed - self._sampler.drawable_rows)
        return deletable

    def make_room(self) -> list[str]:
        """Evict the oldest chunks while data/ is full and evicting frees their files at once. Return the files that may
        be deleted now."""
        deletable: list[str] = []
        while self._files.is_full and len(self._chunks) > 1 and not self._files.may_be_read(self._chunks[0]):
            deletable += self.consume(end_row(self._chunks[0]))
        return deletable

    def priorities(self) -> Prioritized:
        """The newest priority of every live row."""
        slots = np.flatnonzero(self._slots.end_row != DEAD)
        dense = np.full(self.next_row - self.first_live_row, np.nan, np.float32)
        dense[self._slots.end_row[slots] - 1 - self.first_live_row] = self._slots.priority[slots]
        return Prioritized(self.first_live_row, dense)

    # --- batches out ----------------------------------------------------------------------------------------------

    def sampleable_rows(self) -> int:
        """Return the number of rows that may be drawn now."""
        if self.next_row < self._refilled_row:
            return 0
        return min(self._sampler.drawable_rows, self._limiter.sampleable_rows(self.next_row, self.sampled_rows))

    def sample(self, batches: int, batch_size: int, *, train_iter: int, beta: float) -> SampledRows:
        """Draw `batches` batches of `batch_size` rows.

        `train_iter` is the learner's number of updates, `beta` the importance exponent. Raises NotEnoughRowsError.
        """
        wanted = batches * batch_size
        if wanted > self.sampleable_rows():
            raise NotEnoughRowsError(f"{wanted} rows were asked for and {self.sampleable_rows()} may be drawn now")
        slots, probabilities = self._sampler.sample(batches, batch_size, self._rng)
        np.add.at(self._slots.uses, slots.ravel(), 1)
        self.sampled_rows += wanted
        drawn = self._slots.take(slots)
        return SampledRows(
            rows=drawn["end_row"] - 1,
            weights=importance_weights(probabilities, beta),
            uses=drawn["uses"],
            priorities=drawn["priority"],
            # A learner that resumed from an older checkpoint is behind the policies that collected: not stale.
            staleness=np.maximum(train_iter - drawn["policy_iter"], 0),
        )

    def draw_chunk(
        self, rng: np.random.Generator, wanted: Callable[[IndexedChunk], bool], *, draws: int
    ) -> IndexedChunk | None:
        """Draw `draws` rows as for batches, without counting them, and return the chunk of the first row with a
        `wanted` chunk; None without such a row. Not for samplers that hand out each row once."""
        if not self._sampler.drawable_rows:
            return None
        slots, _ = self._sampler.sample(1, draws, rng)
        for row in self._slots.end_row[rng.permutation(slots[0])] - 1:  # strata are in order of their slots
            chunk = self.chunk_of(int(row))
            if chunk is not None and wanted(chunk):
                return chunk
        return None

    def chunk_of(self, row: int) -> IndexedChunk | None:
        """Return the chunk with live rows that has this row."""
        place = bisect_right(self._chunks, row, key=lambda chunk: chunk.first_row) - 1
        return self._chunks[place] if place >= 0 and row < end_row(self._chunks[place]) else None

    def hold(self, more_bytes: int) -> None:
        """Add to the bytes in data/ of chunks with live rows; a negative number subtracts."""
        self._files.add_bytes(more_bytes)

    def update_priorities(self, rows: Rows, priorities: npt.NDArray[np.floating]) -> None:
        """Pass on the errors of `rows` int64 [n]. Rows that are not live (any more) are ignored."""
        if rows.ndim != 1 or rows.shape != priorities.shape:
            raise ValueError(f"rows and priorities must be [n] and alike, not {rows.shape} and {priorities.shape}")
        slots = rows % self.capacity
        live = self._slots.end_row[slots] == rows + 1
        live &= rows >= 0
        if not live.all():
            slots, priorities = slots[live], priorities[live]
        self._sampler.update(slots, priorities)

    def achieved_samples_per_insert(self) -> float:
        """Average number of draws per row so far, without the warm-up; nan before the first row."""
        return self._limiter.achieved(self.next_row, self.sampled_rows)

    # --- what the learner knows -----------------------------------------------------------------------------------

    def hand_out_new(self) -> list[IndexedChunk]:
        """Return the chunks that are new to the learner, in row order; they count as announced from now on.

        Only chunks with live rows are returned, so only evicted or quarantined rows are missing.
        """
        new: list[IndexedChunk] = []
        for chunk in reversed(self._chunks):
            if chunk.first_row < self._files.announced_row:
                break
            new.append(chunk)
        self._files.announce(self.next_row)
        return new[::-1]

    @property
    def announced_row(self) -> int:
        """Every chunk below this row was announced to the learner."""
        return self._files.announced_row

    def confirm_loaded(self, loaded_row: int) -> list[str]:
        """Note that the learner's ring has every live row below `loaded_row`; return the files that may be deleted now.

        Raises ValueError if the learner claims rows before their announcement. A lower number than before changes
        nothing.
        """
        return self._files.confirm_loaded(loaded_row) + self.make_room()

    def forget_learner(self) -> list[str]:
        """Note the loss of the learner with its ring: the next call of `hand_out_new` starts over. Return the files
        that may be deleted now."""
        return self._files.forget_learner() + self.make_room()

    def learner_has(self, below_row: int) -> None:
        """Note that a learner from before the restart has loaded every live chunk below `below_row`."""
        self._files.learner_has(min(below_row, self.next_row))

    def files(self) -> set[str]:
        """Return every payload file that must stay in data/."""
        return {chunk.meta.file for chunk in self._chunks} | self._files.unloaded

    @property
    def payload_bytes(self) -> int:
        """Bytes of payload files not yet reported as deletable."""
        return self._files.bytes

    # --- inside ---------------------------------------------------------------------------------------------------

    def _admit(self, chunk: IndexedChunk, end: int) -> None:
        """Make the rows of the newest chunk live, except evicted rows, in free slots. `end`: one above the last row."""
        first = max(chunk.first_row, self.first_live_row)
        slots, where = self._slots_of(first, end)
        self._slots.end_row[where] = np.arange(first + 1, end + 1)
        self._slots.policy_iter[where] = chunk.meta.policy.train_iter
        self._slots.uses[where] = 0
        self._sampler.on_insert(slots)
        self._chunks.append(chunk)
        self._has_older |= (chunk.meta.policy.epoch, chunk.meta.policy.version) < self._dropped_below
        self.rows += len(slots)
        self._files.add(chunk.meta)

    def _slots_of(self, first: int, end: int) -> tuple[Rows, slice | Rows]:
        """Return the slots of consecutive rows, at most the capacity; and the same in numpy's fastest form: as a slice,
        unless they wrap around."""
        first_slot = first % self.capacity
        end_slot = first_slot + end - first
        slots = np.arange(first_slot, end_slot)
        if end_slot <= self.capacity:
            return slots, slice(first_slot, end_slot)
        slots[self.capacity - first_slot :] -= self.capacity
        return slots, slots

    def _kill(self, first: int, end: int) -> None:
        """Remove the live rows in this range from the sampler; none is below `first_live_row`."""
        if first == end:
            return
        slots, where = self._slots_of(first, end)
        if self.rows < self.next_row - self.first_live_row:  # some were dropped ahead of their turn
            where = slots = slots[self._slots.end_row[slots] != DEAD]
        if len(slots):
            self._sampler.on_evict(slots)
            self._slots.end_row[where] = DEAD
            self.rows -= len(slots)
            self.removed_rows += len(slots)

    def _drop(self, chunk: IndexedChunk) -> list[str]:
        """Evict a chunk at any position in the queue; returns the file if deletable now."""
        self._kill(max(chunk.first_row, self.first_live_row), end_row(chunk))
        self._chunks.remove(chunk)
        self._on_retire(chunk)
        return self._files.retire(chunk)
