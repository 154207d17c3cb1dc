"""How much room payload files take, and which of them are not needed any more."""

from __future__ import annotations

from remuda.wire.messages import ChunkMeta, IndexedChunk


class PayloadFiles:
    """The files of a replay index's chunks: their bytes, and how far they were announced to the learner and loaded by
    it.

    A file may be deleted once no row in it is live and the learner has either loaded it or never got a message about
    it; each file is returned exactly once, by the call that made it so.
    """

    def __init__(self, quota_bytes: int, chunks_ahead: int) -> None:
        """`chunks_ahead` is how many files may be written before they are known here."""
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
        """Whether the quota leaves no room for the files that are on their way."""
        return self.bytes > self.quota_bytes - self._chunks_ahead * self._largest_bytes

    def add(self, meta: ChunkMeta) -> None:
        """Add a chunk whose rows become live."""
        self.bytes += meta.payload_bytes
        self._largest_bytes = max(self._largest_bytes, meta.payload_bytes)

    def add_bytes(self, more_bytes: int) -> None:
        """Files that belong to chunks take so many bytes more in data/, or fewer if negative."""
        self.bytes += more_bytes

    def retire(self, chunk: IndexedChunk) -> list[str]:
        """No row of the chunk is live any more; returns its file if it may be deleted now."""
        if self.may_be_read(chunk):
            self._unloaded.append(chunk)
            return []
        self.bytes -= chunk.meta.payload_bytes
        return [chunk.meta.file]

    def may_be_read(self, chunk: IndexedChunk) -> bool:
        """Whether the chunk was announced to the learner and is not loaded yet."""
        return chunk.first_row < self.announced_row and chunk.first_row + chunk.meta.rows > self._loaded_row

    def announce(self, below_row: int) -> None:
        """Every chunk below this row is announced to the learner now."""
        self.announced_row = below_row

    def confirm_loaded(self, loaded_row: int) -> list[str]:
        """The learner has every live row below `loaded_row`. If that is lower than before, nothing changes. Returns the
        files that may be deleted now.

        Raises ValueError if the learner claims rows that were not announced to it.
        """
        if loaded_row > self.announced_row:
            raise ValueError(f"the learner says it loaded rows below {loaded_row}; it was told {self.announced_row}")
        self._loaded_row = max(self._loaded_row, loaded_row)
        return self._release()

    def forget_learner(self) -> list[str]:
        """The learner is gone, and nobody reads what was announced to it; returns the files that may be deleted now."""
        self.announced_row = self._loaded_row = 0
        return self._release()

    def learner_has(self, below_row: int) -> None:
        """There is a learner to which every chunk below this row was announced, and which has loaded them."""
        self.announced_row = self._loaded_row = below_row

    def _release(self) -> list[str]:
        """Return the files that waited for the learner and need not any more."""
        if not self._unloaded:
            return []
        waiting, self._unloaded = self._unloaded, []
        return [file for chunk in waiting for file in self.retire(chunk)]


def end_row(chunk: IndexedChunk) -> int:
    """One above the chunk's last row."""
    return chunk.first_row + chunk.meta.rows
