"""Entries of a run's journal, and its content for a restart."""

from __future__ import annotations

from dataclasses import dataclass, field

from remuda.buffer.index import Prioritized
from remuda.training.run_snapshot import Changes, FinishedRun, RunSnapshot
from remuda.training.snapshot import NewEpisodes
from remuda.wire.messages import ChunkMeta, IndexedChunk


@dataclass(frozen=True)
class JournalEntry:
    """An entry of the run's journal, written before all other steps of this turn. Never changed later, since another
    thread may write it."""

    experiment: str
    snapshot: RunSnapshot
    """Without rows, which are in `changes`."""
    changes: Changes = field(default_factory=Changes)
    """Changed and removed rows."""
    added: tuple[IndexedChunk, ...] = ()
    """New live chunks."""
    gone: tuple[int, ...] = ()
    """First rows of chunks that are no longer live."""
    priorities: Prioritized | None = None
    """A new snapshot of all priorities, when due."""
    episodes: NewEpisodes | None = None
    last: FinishedRun | None = None
    """Row in the list of runs; set once the run is over."""
    others: tuple[JournalEntry, ...] = ()
    """Entries of the other policies of the run, in the order of names, committed together."""


@dataclass(frozen=True)
class Recovered:
    """A run from its journal, to be continued or resumed."""

    snapshot: RunSnapshot
    chunks: tuple[IndexedChunk, ...]
    """Live chunks with existing payload files, in row order."""
    priorities: Prioritized | None
    uncounted: tuple[ChunkMeta, ...] = ()
    """Written but uncounted payloads, by their headers; empty if not searched for."""
    others: tuple[Recovered, ...] = ()
    """Content for the other policies of the run, in the order of names."""
