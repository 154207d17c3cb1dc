"""Where a run goes on after its process has ended: at its newest checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.wire.messages import CheckpointRecord, Counters, PolicyRef


@dataclass(frozen=True)
class Resumed:
    """What was and stays counted. Random streams that no journal has are those of a new life (`life`)."""

    record: CheckpointRecord
    """The checkpoint that is continued from."""
    counters: Counters
    """What was learned after that checkpoint did not happen. What was counted after it stays counted where a journal
    has it; else these are the checkpoint's own."""
    policy: PolicyRef
    """The newest that was published, be it after that checkpoint."""
    best: CheckpointRecord | None
    """The best of the checkpoints so far, with its reward."""
    progress_rows: int
    """Rows of progress.txt that still hold."""

    @property
    def life(self) -> int:
        """Which life of the run this is, 0 being the first: the epoch its learner publishes under."""
        return self.policy.epoch + 1
