"""A run that is over, or that cannot be recovered: what is shown of it, and what its late workers hear."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.coordinator.effects import Reply, Step
from remuda.training.effects import LogLine
from remuda.training.identity import Identity
from remuda.training.snapshot import FinishedRunSnapshot
from remuda.wire.messages import AnyMessage, ChunkAccepted, ChunkReady, ExperimentState, ExperimentStatus, WorkerFailed


@dataclass(frozen=True)
class FinishedRun:
    """Takes the place of an experiment that is over and journaled, and of its replay index above all."""

    identity: Identity
    last: ExperimentStatus
    unrecoverable: bool = False
    """A previous coordinator's run that cannot be taken up: at best it can be resumed."""
    over = True

    @property
    def state(self) -> ExperimentState:
        """How it ended."""
        return self.last.state

    def status(self, now_s: float) -> ExperimentStatus:
        """As `remuda status` shows it."""
        return self.last

    def snapshot(self) -> FinishedRunSnapshot:
        """What is kept of it in the list of runs. Its config stands in its folder."""
        return FinishedRunSnapshot(self.identity.snapshot(config_json=""), self.last, self.unrecoverable)

    @staticmethod
    def of(snapshot: FinishedRunSnapshot) -> FinishedRun:
        """The one that is kept so."""
        return FinishedRun(Identity.of(snapshot.identity), snapshot.last, snapshot.unrecoverable)

    def receive(self, message: AnyMessage) -> list[Step]:
        """A late chunk is refused; the stacks of a worker that did not let go are shown."""
        match message:
            case ChunkReady():
                return [refused(message, f"the experiment is over ({self.state})")]
            case WorkerFailed():
                text = f"lease {message.lease}: {message.error}\n{message.traceback}"
                return [LogLine(self.identity.id, text, "error")]
            case _:
                return []


def refused(message: ChunkReady, why: str) -> Reply:
    """A chunk that nothing comes of."""
    return Reply(ChunkAccepted(message.meta.chunk, 0, message.meta.policy, {}, rejected=why))
