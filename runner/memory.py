"""The experience of a serial run: rows in memory for the learner, and files for checkpoints only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from remuda.buffer.chunk import ChunkError, Columns, delete_chunks, read_chunk, write_chunk
from remuda.buffer.ring import ColumnRing
from remuda.learner.prefetch import Prefetch
from remuda.training.replay.accounting import ReplayAccounting
from remuda.wire.messages import ChunkMeta, IndexedChunk

WAITING_BYTES = 64 << 20
"""Most bytes of chunks that wait for a checkpoint; beyond, files are written at once."""


class Payloads:
    """Payload files for the next checkpoint, and files to delete once it is saved.

    Files of the checkpoint before stay until then: a killed run continues from there.
    """

    def __init__(self, data: Path, *, waiting_bytes: int = WAITING_BYTES) -> None:
        self._data = data
        self._most_bytes = waiting_bytes
        self._waiting: dict[str, tuple[ChunkMeta, Columns]] = {}
        self._waiting_bytes = 0
        self._written: dict[str, ChunkMeta] = {}
        self._retired: list[str] = []

    def add(self, meta: ChunkMeta, columns: Columns) -> None:
        """Add a chunk. Raises OSError if a write is needed at once and the disk refuses."""
        self._waiting[meta.file] = meta, columns
        self._waiting_bytes += meta.payload_bytes
        if self._waiting_bytes > self._most_bytes:
            self._write()

    def retire(self, files: Iterable[str]) -> None:
        """Note that these files have no live rows. Unwritten files are never written."""
        for file in files:
            waiting = self._waiting.pop(file, None)
            if waiting is None:
                self._retired.append(file)
            else:
                self._waiting_bytes -= waiting[0].payload_bytes

    def written(self) -> dict[str, ChunkMeta]:
        """Write all waiting chunks; returns by file name the chunks written since the last `sweep`. Raises OSError."""
        self._write()
        return self._written

    def sweep(self) -> None:
        """Delete files that only the checkpoint before needed. Call this once the new checkpoint is committed."""
        delete_chunks(self._data, self._retired)
        self._retired, self._written = [], {}

    def _write(self) -> None:
        for meta, columns in self._waiting.values():
            self._written[meta.file] = write_chunk(self._data, meta, columns)
        self._waiting, self._waiting_bytes = {}, 0


class Memory(Prefetch):
    """The rows of a policy in this process, and the batches of its learner."""

    def __init__(
        self,
        replay: ReplayAccounting,
        data: Path,
        *,
        lease: int,
        unreadable: Callable[[IndexedChunk, ChunkError], None],
        waiting_bytes: int = WAITING_BYTES,
    ) -> None:
        """`data` is the folder of payload files; `unreadable` is called with every unreadable payload."""
        plan = replay.plan
        super().__init__(
            lease=lease,
            batches=plan.batches_per_request,
            batch_size=plan.rows_per_update,
            ring=ColumnRing(plan.capacity),
            requests_in_flight=1,
            read=self._read_chunk,
            unreadable=unreadable,
        )
        self.payloads = Payloads(data, waiting_bytes=waiting_bytes)
        self._replay, self._data = replay, data
        self._new: Columns | None = None
        """Columns of the chunk during `insert`."""

    def insert(self, meta: ChunkMeta, columns: Columns) -> None:
        """Put the rows of the newest counted chunk into the ring. Raises OSError like Payloads.add."""
        self._new = columns
        self.load(self._replay.hand_out_new())
        self._new = None
        self.payloads.add(meta, columns)
        self._confirm()

    def restore(self, chunks: Sequence[IndexedChunk]) -> None:
        """Read the chunks of a resumed run."""
        self.load(chunks)
        self._confirm()

    def release_used(self) -> None:
        """Retire payloads of rows that are used only once. Call this after learning from all drawn batches."""
        self._replay.hand_out_new()  # nothing is new; rows drawn before count as used
        self._confirm()

    def _confirm(self) -> None:
        self.payloads.retire(self._replay.confirm_loaded(self.loaded_row))

    def _read_chunk(self, chunk: IndexedChunk) -> Columns:
        return read_chunk(self._data / chunk.meta.file, chunk.meta) if self._new is None else self._new
