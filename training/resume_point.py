"""Start of a resumed run."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.training.snapshot import TaskSnapshot
from remuda.wire.messages import CheckpointRecord, Counters, PolicyRef

_FIRST = TaskSnapshot()


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
    task: TaskSnapshot = _FIRST
    """Present task."""

    @property
    def generation(self) -> int:
        """Incarnation of the run, from 0: the epoch of its learner's policies."""
        return self.policy.epoch + 1
