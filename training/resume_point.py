"""The point from which a resumed run continues."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.training.snapshot import TaskSnapshot
from remuda.wire.messages import CheckpointRecord, Counters, PolicyRef

_FIRST = TaskSnapshot()


@dataclass(frozen=True)
class ResumePoint:
    """The point from which a resumed run continues. Random streams that no journal has get the new `generation`."""

    record: CheckpointRecord
    """The checkpoint from which the run continues."""
    counters: Counters
    """Updates after that checkpoint are void. Experience after it stays counted if a journal has it; otherwise these
    are the checkpoint's own counters."""
    policy: PolicyRef
    """The newest policy that was published, even if after that checkpoint."""
    best: CheckpointRecord | None
    """The best of the checkpoints so far, with its reward."""
    progress_rows: int
    """The number of rows of progress.txt that are still valid."""
    checkpoints: tuple[CheckpointRecord, ...] = ()
    """All that the run has, oldest first."""
    task: TaskSnapshot = _FIRST
    """The task that it is at."""

    @property
    def generation(self) -> int:
        """Which incarnation of the run this is, 0 being the first: the epoch its learner publishes under."""
        return self.policy.epoch + 1
