"""Requests batches ahead of time, so the learner trains while the coordinator samples.

With two requests in flight, the batches of one are used while the next is answered. With one, the next request follows
after training on the batches before, as strictly on-policy learning requires. Pure, except for reading payload files;
sends nothing itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from remuda.buffer.chunk import ChunkError, Columns
from remuda.buffer.ring import ColumnRing
from remuda.learner.loop import Batch, Priorities
from remuda.wire.messages import Batches, BatchRequest, Counters, IndexedChunk, IndexedReanalysis, Reanalysis

Rows = NDArray[np.int64]
Weights = NDArray[np.float32]

GATHER_BYTES = 1 << 20
"""Batches smaller than this are gathered together: a fancy index costs as much as fifty small rows."""


class NothingReadableError(Exception):
    """All payloads of a batch are missing or damaged."""


class Prefetch:
    """The learner's side of replay: makes requests, loads payloads into the ring, and gathers batches from it.

    A reply's new chunks are loaded when its first batch is needed, not on arrival, so the ring is never ahead of
    the batches to be gathered.
    """

    def __init__(
        self,
        *,
        lease: int,
        batches: int,
        batch_size: int,
        ring: ColumnRing,
        read: Callable[[IndexedChunk], Columns],
        unreadable: Callable[[IndexedChunk, ChunkError], None],
        requests_in_flight: int = 2,
        read_again: Callable[[Reanalysis], Columns] | None = None,
        left_out: Callable[[Reanalysis, Exception], None] = lambda reanalysis, error: None,
    ) -> None:
        """`unreadable` is called with every unreadable payload; batches continue without its rows. `read_again` reads a
        reanalysis; `left_out` is called with every reanalysis that is unreadable or does not fit: its rows do not
        change."""
        self._lease = lease
        self._batches = batches
        self._batch_size = batch_size
        self._ring = ring
        self._read = read
        self._unreadable = unreadable
        self._requests_in_flight = requests_in_flight
        self._read_again = read_again
        self._left_out = left_out
        self._reanalysis = 0
        """Number of the newest reanalysis read."""
        self._missing: list[IndexedChunk] = []
        """Unreadable chunks whose rows may be in batches sampled before the coordinator knew."""
        self._requested = 0
        self._unanswered: dict[int, BatchRequest] = {}
        self._begun = 0
        self._replies: dict[int, Batches] = {}
        self._current: _Reply | None = None
        self._batches_at_once = 1
        self.counters = Counters()
        """Counters of the newest reply in use."""
        self.rewritten_rows = 0
        """Number of rows with rewritten columns, counted once per rewriting."""

    def load(self, chunks: Sequence[IndexedChunk]) -> None:
        """Load payloads into the ring, in row order. Missing and damaged payloads are left out and reported. Chunks
        announced again after a reconnection are skipped."""
        for chunk in chunks:
            if chunk.first_row < self._ring.next_row:
                continue
            try:
                columns = self._read(chunk)
            except ChunkError as error:
                self._missing.append(chunk)
                self._unreadable(chunk, error)
            else:
                self._ring.write(chunk.first_row, columns)

    def rewrite(self, reanalyses: Sequence[IndexedReanalysis]) -> None:
        """Write reanalyses into the ring. Rows that are gone, or computed by a newer target network, do not change."""
        for each in reanalyses:
            if each.number <= self._reanalysis or self._read_again is None:
                continue
            self._reanalysis = each.number
            try:
                columns = self._read_again(each.meta)
                self.rewritten_rows += self._ring.rewrite(each.meta.first_row, columns, each.meta.target.train_iter)
            except (ChunkError, ValueError) as error:
                self._left_out(each.meta, error)

    @property
    def loaded_row(self) -> int:
        """All rows below this row are in the ring."""
        return self._ring.next_row

    @property
    def wants_request(self) -> bool:
        """True if the next request should be sent now."""
        return self._requested - self._begun < self._requests_in_flight

    def request(self, train_iter: int, priorities: Priorities) -> BatchRequest:
        """Make the next request, with the priorities since the request before."""
        self._requested += 1
        request = BatchRequest(
            lease=self._lease,
            request=self._requested,
            oldest=next(iter(self._unanswered), self._requested),
            batches=self._batches,
            batch_size=self._batch_size,
            train_iter=train_iter,
            loaded_row=self._ring.next_row,
            priority_rows=priorities.rows,
            priorities=priorities.errors,
            loaded_reanalysis=self._reanalysis,
        )
        self._unanswered[request.request] = request
        return request

    def repeat(self) -> list[BatchRequest]:
        """Unanswered requests, oldest first: after a reconnection another coordinator may have to answer them."""
        oldest, loaded_row = next(iter(self._unanswered), 0), self._ring.next_row
        self._unanswered = {
            number: replace(request, oldest=oldest, loaded_row=loaded_row, loaded_reanalysis=self._reanalysis)
            for number, request in self._unanswered.items()
        }
        return list(self._unanswered.values())

    def arrived(self, reply: Batches) -> None:
        """Take an answer of the coordinator. Answers may arrive in any order, and are used in order of requests."""
        self._unanswered.pop(reply.request, None)
        if reply.request > self._begun:
            self._replies[reply.request] = reply

    def next_batch(self) -> Batch | None:
        """Return the next batch: columns plus `weights`; None before it has arrived. Raises NothingReadableError."""
        if self._current is None:
            reply = self._replies.pop(self._begun + 1, None)
            if reply is None:
                return None
            self._current = self._begin(reply)
        batch = self._current.next_batch(self._gather)
        if self._current.used_up:
            live = self._current.first_live_row
            self._missing = [chunk for chunk in self._missing if chunk.first_row + chunk.meta.rows > live]
            self._current = None
        return batch

    def _begin(self, reply: Batches) -> _Reply:
        self._begun += 1
        self.counters = reply.counters
        self.load(reply.new_chunks)
        self.rewrite(reply.reanalyses)
        rows, weights = reply.rows, np.array(reply.weights)  # a message's arrays are read-only, which torch warns of
        if self._missing:
            readable = [self._readable(*batch) for batch in zip(rows, weights, strict=True)]
            rows, weights = (np.stack(parts) for parts in zip(*readable, strict=True))
        return _Reply(rows, weights, reply.first_live_row, reply.counters.env_step)

    def _gather(self, rows: Rows) -> list[Columns]:
        """Gather the first of `rows` [batches, batch_size]: the most efficient number of batches at once."""
        rows = rows[: self._batches_at_once]
        together = self._ring.gather(rows.ravel())
        batch_bytes = sum(column.nbytes for column in together.values()) // len(rows)
        self._batches_at_once = max(1, GATHER_BYTES // max(1, batch_bytes))
        size = rows.shape[1]
        return [
            {name: column[start : start + size] for name, column in together.items()}
            for start in range(0, rows.size, size)
        ]

    def _readable(self, rows: Rows, weights: Weights) -> tuple[Rows, Weights]:
        """Replace unreadable rows by readable rows of the same batch."""
        kept = np.ones(len(rows), np.bool_)
        for chunk in self._missing:
            kept &= (rows < chunk.first_row) | (rows >= chunk.first_row + chunk.meta.rows)
        if not kept.any():
            raise NothingReadableError(f"none of the {len(rows)} rows of a batch is in a readable payload file")
        positions = np.resize(np.flatnonzero(kept), len(rows))
        return rows[positions], weights[positions]


class _Reply:
    """The batches of an answer, in order."""

    def __init__(self, rows: Rows, weights: Weights, first_live_row: int, env_step: int) -> None:
        self._env_step = env_step
        self.first_live_row = first_live_row
        self._rows = rows
        self._weights = weights
        self._position = 0
        self._gathered: deque[Columns] = deque()

    @property
    def used_up(self) -> bool:
        return self._position == len(self._rows)

    def next_batch(self, gather: Callable[[Rows], list[Columns]]) -> Batch:
        if not self._gathered:
            self._gathered.extend(gather(self._rows[self._position :]))
        position = self._position
        self._position += 1
        columns = {**self._gathered.popleft(), "weights": self._weights[position]}
        return Batch(self._rows[position], columns, self._env_step)
