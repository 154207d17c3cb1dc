"""The input events of the state machine."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import PrepareRun, Requester
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.settings import Hold
from remuda.training.journal_entry import Recovered, ResumePoint
from remuda.training.run_snapshot import FinishedRun, Identity, RunSnapshot
from remuda.wire.codec import Envelope
from remuda.wire.keys.authorized import Identity as KeyIdentity
from remuda.wire.messages import Bill, ChunkMeta, CoordinatorLoad, LogText, Quota, Rejected, WorkerVitals


class Received(Struct, frozen=True):
    """An envelope came from this peer."""

    peer: bytes
    envelope: Envelope
    who: KeyIdentity
    """Holder of the connection's key."""


@dataclass(frozen=True)
class PreparedRun:
    """The prepared run folder of a submitted experiment."""

    request: PrepareRun
    config: ExperimentConfig
    identity: Identity
    resumed: ResumePoint | None = None
    """Start of a resumed run."""
    recovered: Recovered | None = None
    """The run's experience, from the journal of the earlier incarnation."""
    uncounted: tuple[ChunkMeta, ...] = ()
    """Payloads of the earlier incarnation without a worker to announce them: counted now."""
    others: tuple[PreparedRun, ...] = ()
    """The same for the remaining policies of the run, in the order of names."""


@dataclass(frozen=True)
class RunPrepared:
    """The run folder of a submitted experiment is ready, with the experiment."""

    request: PrepareRun
    experiment: Experiment


@dataclass(frozen=True)
class RecoveredRun:
    """A run of a previous coordinator, rebuilt from the journal."""

    experiment: Experiment
    snapshot: RunSnapshot
    uncounted: tuple[tuple[ChunkMeta, ...], ...] = ()
    """Uncounted chunks in the run's data/, with the part of every policy."""
    hold: Hold | None = None
    """A hold from the previous coordinator, until the disk accepts writes again."""

    @property
    def identity(self) -> Identity:
        """Identity of the run."""
        return self.experiment.identity


@dataclass(frozen=True)
class RunRecovered:
    """The result of recovering a run of a previous coordinator; None: a different coordinator works on the run."""

    experiment: str
    run: RecoveredRun | FinishedRun | None


@dataclass(frozen=True)
class RunRefused:
    """The experiment is refused: its config is wrong, or the run folder is taken."""

    experiment: str
    requester: Requester
    rejection: Rejected


@dataclass(frozen=True)
class Answered:
    """The answer to a client's request that the disk has carried out."""

    requester: Requester
    answer: LogText | Bill | Rejected


@dataclass(frozen=True)
class QuotaKept:
    """A quota is in the list of runs."""

    requester: Requester
    quota: Quota


@dataclass(frozen=True)
class Tick:
    """Time has passed."""

    hour: int = 0
    """Present hour since 1970, UTC; 0: unknown."""


@dataclass(frozen=True)
class SelfVitals:
    """Resource use of the coordinator's own process since its start, by purpose."""

    vitals: WorkerVitals
    load: CoordinatorLoad


@dataclass(frozen=True)
class HeldUp:
    """The disk of this run does not accept writes, or accepts them again."""

    experiment: str
    hold: Hold | None
    """None: the disk accepts writes again."""


@dataclass(frozen=True)
class RunBroken:
    """The writes of this run have failed for good: the run has failed."""

    experiment: str
    reason: str
    traceback: str = ""


@dataclass(frozen=True)
class ShutdownRequested:
    """The operating system (or the user's Ctrl-C) asks the coordinator to end."""

    reason: str


@dataclass(frozen=True)
class HandoverRequested:
    """The coordinator must end; its next start continues the runs."""

    reason: str


DiskEvent = RunPrepared | RunRefused | Answered | QuotaKept | HeldUp | RunBroken
Event = Received | Tick | SelfVitals | ShutdownRequested | HandoverRequested | DiskEvent
