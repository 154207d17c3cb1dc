"""The replay of a serial run on disk: payload files are written only with a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from remuda.buffer.chunk import Columns, delete_chunks, write_chunk
from remuda.wire.messages import ChunkMeta

WAITING_BYTES = 64 << 20
"""The most memory of chunks that wait for a checkpoint; beyond that, files are written sooner."""


class Payloads:
    """What has to be in data/ for the next checkpoint, and what may be deleted once that is saved.

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
        """Add a counted chunk. Raises OSError if it has to be written at once and the disk refuses."""
        self._waiting[meta.file] = meta, columns
        self._waiting_bytes += meta.payload_bytes
        if self._waiting_bytes > self._most_bytes:
            self._write()

    def retire(self, files: Iterable[str]) -> None:
        """No row of these files is live any more. Those that were not written yet never are."""
        for file in files:
            waiting = self._waiting.pop(file, None)
            if waiting is None:
                self._retired.append(file)
            else:
                self._waiting_bytes -= waiting[0].payload_bytes

    def written(self) -> dict[str, ChunkMeta]:
        """Write what waits; returns by file name what was written since the last `sweep`. Raises OSError."""
        self._write()
        return self._written

    def sweep(self) -> None:
        """The checkpoint is saved: delete what only the one before it needed."""
        delete_chunks(self._data, self._retired)
        self._retired, self._written = [], {}

    def _write(self) -> None:
        for meta, columns in self._waiting.values():
            self._written[meta.file] = write_chunk(self._data, meta, columns)
        self._waiting, self._waiting_bytes = {}, 0
