"""The experience of a serial run: its rows are in memory for the learner, and in files only with a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from remuda.buffer.chunk import ChunkError, Columns, delete_chunks, read_chunk, write_chunk
from remuda.buffer.ring import ColumnRing
from remuda.learner.loop import Batch
from remuda.training.replay.accounting import ReplayAccounting
from remuda.wire.messages import Batches, ChunkMeta, IndexedChunk

WAITING_BYTES = 64 << 20
"""The most memory of chunks that wait for a checkpoint; beyond that, files are written sooner."""


class Payloads:
    """Payload files that the next checkpoint needs, and those that may be deleted once that checkpoint is saved.

    The files of the checkpoint before stay until then: a killed run continues from there.
    """

    def __init__(self, data: Path, *, waiting_bytes: int = WAITING_BYTES) -> None:
        self._data = data
        self._most_bytes = waiting_bytes
        self._waiting: dict[str, tuple[ChunkMeta, Columns]] = {}
        self._waiting_bytes = 0
        self._written: dict[str, ChunkMeta] = {}
        self._retired: list[str] = []

    def add(self, meta: ChunkMeta, columns: Columns) -> None:
        """Add a chunk. Raises OSError if it has to be written at once and the disk refuses."""
        self._waiting[meta.file] = meta, columns
        self._waiting_bytes += meta.payload_bytes
        if self._waiting_bytes > self._most_bytes:
            self._write()

    def retire(self, files: Iterable[str]) -> None:
        """Note that no row of these files is live any more. Files that were not written yet never are."""
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
        """Delete the files that only the checkpoint before this one needed. Call it once this one is committed."""
        delete_chunks(self._data, self._retired)
        self._retired, self._written = [], {}

    def _write(self) -> None:
        for meta, columns in self._waiting.values():
            self._written[meta.file] = write_chunk(self._data, meta, columns)
        self._waiting, self._waiting_bytes = {}, 0


class Memory:
    """The rows of one policy in this process; also the source of its learner's batches."""

    def __init__(self, replay: ReplayAccounting, ring: ColumnRing, payloads: Payloads) -> None:
        self._replay = replay
        self._ring = ring
        self._payloads = payloads
        self._drawn: Batches | None = None
        self._position = 0
        """Of the next batch among the drawn ones."""

    @property
    def loaded_row(self) -> int:
        """The learner has all rows below this one."""
        return self._ring.next_row

    def insert(self, columns: Columns) -> None:
        """Put the rows of the chunk that was counted last into the learner's ring."""
        for chunk in self._replay.hand_out_new():
            self._ring.write(chunk.first_row, columns)
        self._payloads.retire(self._replay.confirm_loaded(self._ring.next_row))

    def load(self, data: Path, chunks: Sequence[IndexedChunk], unreadable: Callable[[str, str], None]) -> None:
        """Read these chunks of a resumed run from its folder `data`. `unreadable` is called with the name of each file
        that cannot be read, and the reason."""
        for chunk in chunks:
            try:
                self._ring.write(chunk.first_row, read_chunk(data / chunk.meta.file, chunk.meta))
            except ChunkError as error:
                unreadable(chunk.meta.file, str(error))
        self._payloads.retire(self._replay.confirm_loaded(self._ring.next_row))

    def drew(self, batches: Batches) -> None:
        """Take over the rows drawn for the next updates."""
        self._drawn, self._position = batches, 0

    def release_used(self) -> None:
        """Retire payloads of rows that are used only once. Call it when all batches drawn were learned from."""
        self._replay.hand_out_new()  # nothing is new, and what was drawn before this counts as used
        self._payloads.retire(self._replay.confirm_loaded(self._ring.next_row))

    def next_batch(self) -> Batch | None:
        """Gather the next of the batches drawn; None when all are used."""
        drawn = self._drawn
        if drawn is None or self._position == len(drawn.rows):
            return None
        rows = drawn.rows[self._position]
        columns = dict(self._ring.gather(rows))
        columns["weights"] = drawn.weights[self._position]
        self._position += 1
        return Batch(rows, columns, drawn.counters.env_step)
