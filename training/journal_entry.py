"""What a run's journal gets with each turn, and what it returns when the run continues."""

from __future__ import annotations

from dataclasses import dataclass, field

from remuda.buffer.index import Prioritized
from remuda.training.run_snapshot import Changes, FinishedRunSnapshot, RunSnapshot
from remuda.training.snapshot import NewEpisodes
from remuda.wire.messages import ChunkMeta, IndexedChunk


@dataclass(frozen=True)
class JournalEntry:
    """An entry of the run's journal, which is written before anything else of this turn is carried out. Nothing in it
    is changed later, since another thread may write it."""

    experiment: str
    snapshot: RunSnapshot
    """Without rows: those are in `changes`."""
    changes: Changes = field(default_factory=Changes)
    """Rows that are new, different or gone."""
    added: tuple[IndexedChunk, ...] = ()
    """Chunks that became live."""
    gone: tuple[int, ...] = ()
    """First rows of chunks that are no longer live."""
    priorities: Prioritized | None = None
    """A new snapshot of all priorities, when one is due."""
    episodes: NewEpisodes | None = None
    last: FinishedRunSnapshot | None = None
    """Its row in the list of runs; set once the run is over."""
    others: tuple[JournalEntry, ...] = ()
    """Of a run with several policies: the entries of the others, in the order of their names. All are committed as
    one."""


@dataclass(frozen=True)
class Recovered:
    """A run as its journal has it, from which the run is continued or resumed."""

    snapshot: RunSnapshot
    chunks: tuple[IndexedChunk, ...]
    """Live chunks whose payload file still exists, in row order."""
    priorities: Prioritized | None
    uncounted: tuple[ChunkMeta, ...] = ()
    """Payloads that were written and are not counted, as their headers describe them; empty where nobody has looked."""
    others: tuple[Recovered, ...] = ()
    """Of a run with several policies: what the journal has of the others, in the order of their names."""
