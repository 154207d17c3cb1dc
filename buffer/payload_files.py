"""Disk space of payload files, and the files that may be deleted."""

from __future__ import annotations

from remuda.wire.messages import ChunkMeta, IndexedChunk


class PayloadFiles:
    """Files of a replay index's chunks: bytes, and progress of announcing and loading.

    A file may be deleted once all rows are evicted, and the learner has loaded the file or never got a message about
    the file. Each file is returned exactly once, by the call after which the file may be deleted.
    """

    def __init__(self, quota_bytes: int, chunks_ahead: int) -> None:
        """`chunks_ahead`: number of files that may be written before `add`."""
        if quota_bytes < 1:
            raise ValueError(f"quota_bytes must be at least 1, not {quota_bytes}")
        self.quota_bytes = quota_bytes
        self.bytes = 0
        """Bytes of all files not yet reported as deletable."""
        self._chunks_ahead = chunks_ahead
        self._largest_bytes = 0
        self._unloaded: list[IndexedChunk] = []  # without live rows, but the learner may be about to read the file
        self.announced_row = 0
        """Every chunk below this row was announced to the learner."""
        self._loaded_row = 0

    @property
    def unloaded(self) -> frozenset[str]:
        """Files without live rows that must still stay."""
        return frozenset(chunk.meta.file for chunk in self._unloaded)

    @property
    def is_full(self) -> bool:
        """True if the quota leaves no room for files in preparation."""
        return self.bytes > self.quota_bytes - self._chunks_ahead * self._largest_bytes

    def add(self, meta: ChunkMeta) -> None:
        """Add a chunk with live rows."""
        self.bytes += meta.payload_bytes
        self._largest_bytes = max(self._largest_bytes, meta.payload_bytes)

    def add_bytes(self, more_bytes: int) -> None:
        """Add to the bytes of chunks' files in data/; a negative number subtracts."""
        self.bytes += more_bytes

    def retire(self, chunk: IndexedChunk) -> list[str]:
        """Note the loss of the chunk's last live row; returns the file if deletable now."""
        if self.may_be_read(chunk):
            self._unloaded.append(chunk)
            return []
        self.bytes -= chunk.meta.payload_bytes
        return [chunk.meta.file]

    def may_be_read(self, chunk: IndexedChunk) -> bool:
        """True if the chunk was announced to the learner and is not loaded yet."""
        return chunk.first_row < self.announced_row and chunk.first_row + chunk.meta.rows > self._loaded_row

    def announce(self, below_row: int) -> None:
        """Every chunk below this row is announced to the learner now."""
        self.announced_row = below_row

    def confirm_loaded(self, loaded_row: int) -> list[str]:
        """Note that the learner has every live row below `loaded_row`. A lower number than before changes nothing.
        Returns the files that may be deleted now.

        Raises ValueError if the learner claims rows before their announcement.
        """
        if loaded_row > self.announced_row:
            raise ValueError(f"the learner says it loaded rows below {loaded_row}; it was told {self.announced_row}")
        self._loaded_row = max(self._loaded_row, loaded_row)
        return self._release()

    def forget_learner(self) -> list[str]:
        """Note the loss of the learner, the only reader of announced files; returns the files that
        may be deleted now."""
        self.announced_row = self._loaded_row = 0
        return self._release()

    def learner_has(self, below_row: int) -> None:
        """Note a learner that has loaded every chunk below this row."""
        self.announced_row = self._loaded_row = below_row

    def _release(self) -> list[str]:
        """Return the files whose wait for the learner is over."""
        if not self._unloaded:
            return []
        waiting, self._unloaded = self._unloaded, []
        return [file for chunk in waiting for file in self.retire(chunk)]


def end_row(chunk: IndexedChunk) -> int:
    """Return one above the chunk's last row."""
    return chunk.first_row + chunk.meta.rows
