"""Which chunks have been counted, and what every counter therefore is."""

from __future__ import annotations

from remuda.coordinator.memory import LedgerMemory, LifeMemory
from remuda.coordinator.sequence import SequenceSet
from remuda.wire.messages import ChunkId, ChunkMeta, Counters


class Ledger:
    """Accepted chunks of one experiment. Counters are sums over accepted chunks and are kept nowhere else; those of a
    resumed run go on from where its checkpoint had them.

    Remembers, per life of a worker, which sequence numbers have come: a high-water mark and the gaps below it. Does no
    I/O and keeps no payload.
    """

    def __init__(self, start: Counters | None = None) -> None:
        self._seen: dict[tuple[str, int], SequenceSet] = {}
        self._env_steps = 0 if start is None else start.env_step
        self._rows = 0
        self._episodes = 0 if start is None else start.episode
        self._chunks = 0

    def accept(self, meta: ChunkMeta) -> bool:
        """Count a chunk. False, and nothing changes, when it had been counted before."""
        chunk = meta.chunk
        life = chunk.worker, chunk.incarnation
        seen = self._seen.get(life) or self._seen.setdefault(life, SequenceSet())
        if not seen.add(chunk.sequence):
            return False
        self._env_steps += meta.env_steps
        self._rows += meta.rows
        self._episodes += len(meta.episode_returns)
        self._chunks += 1
        return True

    def memory(self) -> LedgerMemory:
        """What a restarted coordinator has to know."""
        lives = [
            LifeMemory(worker, incarnation, seen.high_water, [(gap.start, gap.stop) for gap in seen.missing])
            for (worker, incarnation), seen in self._seen.items()
        ]
        return LedgerMemory(self._env_steps, self._rows, self._episodes, self._chunks, lives)

    def remember(self, memory: LedgerMemory) -> None:
        """Go on from there."""
        self._env_steps, self._rows = memory.env_steps, memory.rows
        self._episodes, self._chunks = memory.episodes, memory.chunks
        self._seen = {
            (life.worker, life.incarnation): SequenceSet.of(life.high_water, [range(*gap) for gap in life.gaps])
            for life in memory.lives
        }

    def __contains__(self, chunk: ChunkId) -> bool:
        seen = self._seen.get((chunk.worker, chunk.incarnation))
        return seen is not None and chunk.sequence in seen

    @property
    def env_step(self) -> int:
        """Environment steps in accepted chunks."""
        return self._env_steps

    @property
    def rows(self) -> int:
        """Training rows in the chunks accepted in this life of the run."""
        return self._rows

    @property
    def episode(self) -> int:
        """Episodes that ended in accepted chunks."""
        return self._episodes

    @property
    def chunks(self) -> int:
        """Chunks accepted in this life of the run."""
        return self._chunks
