"""Entries of a run's journal, its content for a restart, and the start of a resumed run."""

from __future__ import annotations

from dataclasses import dataclass, field

from remuda.buffer.index import Prioritized
from remuda.training.run_snapshot import Changes, FinishedRun, RunSnapshot
from remuda.training.snapshot import NewEpisodes, TaskSnapshot
from remuda.wire.messages import CheckpointRecord, ChunkMeta, Counters, IndexedChunk, PolicyRef

_FIRST_TASK = TaskSnapshot()


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


@dataclass(frozen=True)
class ResumePoint:
    """Start of a resumed run. Random streams outside the journal get the new `generation`."""

    record: CheckpointRecord
    """The checkpoint to continue from."""
    counters: Counters
    """Updates after the checkpoint are void. Later experience counts if journaled; otherwise these are the checkpoint's
    own counters."""
    policy: PolicyRef
    """The newest published policy, also if later than the checkpoint."""
    best: CheckpointRecord | None
    """The best checkpoint so far, with its reward."""
    progress_rows: int
    """Number of valid rows of progress.txt."""
    checkpoints: tuple[CheckpointRecord, ...] = ()
    """All checkpoints of the run, oldest first."""
    task: TaskSnapshot = _FIRST_TASK
    """Present task."""

    @property
    def generation(self) -> int:
        """Incarnation of the run, from 0: the epoch of its learner's policies."""
        return self.policy.epoch + 1
