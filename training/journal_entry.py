"""What a run's journal is given with each turn, and what it gives back to whoever goes on with the run."""

from __future__ import annotations

from dataclasses import dataclass, field

from remuda.buffer.index import Prioritized
from remuda.training.snapshot import Changes, FinishedRunSnapshot, NewEpisodes, RunSnapshot
from remuda.wire.messages import IndexedChunk


@dataclass(frozen=True)
class JournalEntry:
    """Write to the run's journal, before anything else of this turn is carried out. Nothing in it is changed later: it
    may be written by another thread."""

    experiment: str
    snapshot: RunSnapshot
    """Without rows."""
    changes: Changes = field(default_factory=Changes)
    """Rows that are new, different or gone."""
    added: tuple[IndexedChunk, ...] = ()
    """Chunks that became live."""
    gone: tuple[int, ...] = ()
    """First rows of chunks that are live no more."""
    priorities: Prioritized | None = None
    """A new snapshot of all priorities, when one is due."""
    episodes: NewEpisodes | None = None
    last: FinishedRunSnapshot | None = None
    """What is kept of it in the list of runs; set once it is over."""


@dataclass(frozen=True)
class Recovered:
    """A run as the journal has it, for whoever goes on with it or resumes it."""

    snapshot: RunSnapshot
    chunks: tuple[IndexedChunk, ...]
    """Live chunks whose payload is still there, in row order."""
    priorities: Prioritized | None
