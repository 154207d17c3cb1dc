"""Serial mode's data path: chunks go into the ring, and batches come straight from the replay index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remuda.buffer.chunk import ChunkError, read_chunk
from remuda.buffer.index import SampledRows
from remuda.buffer.ring import ColumnRing
from remuda.collector.collected import Collected
from remuda.learner.loop import Batch, Priorities
from remuda.runner.payloads import Payloads
from remuda.training.replay.accounting import ReplayAccounting
from remuda.wire.messages import ChunkId, ChunkMeta


class ChunkRefusedError(Exception):
    """A chunk cannot be counted; the message says which setting to change."""


class Memory:
    """Connects the one collector and the one learner; it is also the learner's source of batches."""

    def __init__(
        self, replay: ReplayAccounting, ring: ColumnRing, payloads: Payloads, *, worker: str, generation: int
    ) -> None:
        """`worker` and `generation` are part of the names of chunks."""
        self._replay = replay
        self._ring = ring
        self._payloads = payloads
        self._worker = worker
        self._generation = generation
        self._sequence = 0
        self._sampled: SampledRows | None = None
        self._sampled_at = 0
        """The env_step then."""
        self._position = 0

    def insert(self, collected: Collected) -> ChunkMeta:
        """Count a chunk and put its rows into the ring. Raises ChunkRefusedError."""
        meta = collected.meta(ChunkId(self._worker, self._generation, self._sequence))
        accepted = self._replay.accept(meta, self._generation)
        if accepted.rejected is not None:
            raise ChunkRefusedError(accepted.rejected)
        self._sequence += 1
        self._payloads.add(meta, collected.columns)
        self._payloads.retire(accepted.deletable)
        for indexed in self._replay.hand_out_new():
            self._ring.write(indexed.first_row, collected.columns)
        self._payloads.retire(self._replay.confirm_loaded(self._ring.next_row))
        return meta

    def load(self, data: Path, damaged: Callable[[str], None]) -> None:
        """Read what the run left in `data` before it was resumed; a file that cannot be read is left out and logged."""
        for chunk in self._replay.hand_out_new():
            try:
                self._ring.write(chunk.first_row, read_chunk(data / chunk.meta.file, chunk.meta))
            except ChunkError as error:
                self._payloads.retire(self._replay.quarantine(chunk.meta.file))
                damaged(f"payload {chunk.meta.file} is left out: {error}")
        self._payloads.retire(self._replay.confirm_loaded(self._ring.next_row))

    def sample(self, batches: int, batch_size: int, *, train_iter: int, priorities: Priorities) -> None:
        """Give priorities back and draw the batches that `next_batch` is going to hand over."""
        self._replay.index.update_priorities(priorities.rows, priorities.errors)
        self._sampled = self._replay.sample(batches, batch_size, train_iter)
        self._sampled_at, self._position = self._replay.ledger.env_step, 0

    def release_used(self) -> None:
        """All batches drawn were learned from: payloads of rows that are used once are not needed any more."""
        self._replay.hand_out_new()  # nothing is new, and what was drawn before this counts as used
        self._payloads.retire(self._replay.confirm_loaded(self._ring.next_row))

    def next_batch(self) -> Batch | None:
        """The next of the batches drawn; None when they are used up."""
        sampled = self._sampled
        if sampled is None or self._position == len(sampled.rows):
            return None
        rows = sampled.rows[self._position]
        columns = dict(self._ring.gather(rows))
        columns["weights"] = sampled.weights[self._position]
        self._position += 1
        return Batch(rows, columns, self._sampled_at)
