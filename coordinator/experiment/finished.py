"""A run that is over, or that cannot be recovered: what status shows of it, and the answers to its late workers."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.coordinator.effects import Reply, Step
from remuda.training.effects import LogLine
from remuda.training.identity import Identity
from remuda.training.run_snapshot import FinishedRunSnapshot
from remuda.wire.messages import AnyMessage, ChunkAccepted, ChunkReady, ExperimentState, ExperimentStatus, WorkerFailed


@dataclass(frozen=True)
class FinishedRun:
    """Replaces an experiment that is over and journaled, so that its memory, above all the replay index, is freed."""

    identity: Identity
    last: ExperimentStatus
    unrecoverable: bool = False
    """A previous coordinator's run that cannot be recovered: at best it can be resumed."""
    over = True

    @property
    def state(self) -> ExperimentState:
        """Its last status."""
        return self.last.state

    def status(self, now_s: float) -> ExperimentStatus:
        """As `remuda status` shows it."""
        return self.last

    def snapshot(self) -> FinishedRunSnapshot:
        """Its row in the list of runs. Its config is in its folder."""
        return FinishedRunSnapshot(self.identity.snapshot(config_json=""), self.last, self.unrecoverable)

    @staticmethod
    def of(snapshot: FinishedRunSnapshot) -> FinishedRun:
        """The finished run of a row in the list of runs."""
        return FinishedRun(Identity.of(snapshot.identity), snapshot.last, snapshot.unrecoverable)

    def receive(self, message: AnyMessage) -> list[Step]:
        """Handle a late message: a chunk is refused; the stacks of a worker that did not let go are logged."""
        match message:
            case ChunkReady():
                return [refused(message, f"the experiment is over ({self.state})")]
            case WorkerFailed():
                text = f"lease {message.lease}: {message.error}\n{message.traceback}"
                return [LogLine(self.identity.id, text, "error")]
            case _:
                return []


def refused(message: ChunkReady, why: str) -> Reply:
    """The answer to a chunk that is not counted."""
    return Reply(ChunkAccepted(message.meta.chunk, 0, message.meta.policy, {}, rejected=why))
