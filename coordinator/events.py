"""Everything that can happen to the coordinator: the input of the state machine."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.catalog import FinishedRun
from remuda.coordinator.effects import PrepareRun, Requester
from remuda.coordinator.experiment.team import Run
from remuda.coordinator.limits import Hold
from remuda.training.journal_entry import Recovered
from remuda.training.resume_point import ResumePoint
from remuda.training.run_snapshot import RunSnapshot
from remuda.wire.codec import Envelope
from remuda.wire.keys.authorized import Identity
from remuda.wire.messages import ChunkMeta, CoordinatorLoad, LogText, Rejected, WorkerVitals


class Received(Struct, frozen=True):
    """An envelope came from this peer."""

    peer: bytes
    envelope: Envelope
    who: Identity
    """Whose key the connection was made with."""


@dataclass(frozen=True)
class PreparedRun:
    """What was found and made in the run folder of a submitted experiment."""

    request: PrepareRun
    config: ExperimentConfig
    run_dir: str
    policy_file: str
    resumed: ResumePoint | None = None
    """The point from which a resumed run continues."""
    recovered: Recovered | None = None
    """Its experience, from the journal of its earlier incarnation."""
    uncounted: tuple[ChunkMeta, ...] = ()
    """Payloads of that incarnation that nobody will announce any more: they are counted now."""
    policy: str = ""
    """Which of several policies this is about."""
    others: tuple[PreparedRun, ...] = ()
    """Of a run with several policies: the same of the others, in the order of their names."""


@dataclass(frozen=True)
class RunPrepared:
    """The run folder of a submitted experiment is ready, and everything that the experiment begins with."""

    request: PrepareRun
    experiment: Run


@dataclass(frozen=True)
class RecoveredRun:
    """A run of a previous coordinator, rebuilt from its journal."""

    experiment: Run
    snapshot: RunSnapshot
    uncounted: tuple[tuple[ChunkMeta, ...], ...] = ()
    """Chunks in its data/ that were not counted, each as all of its policies have it."""
    hold: Hold | None = None
    """It was held up when that coordinator ended, and its disk has yet to show that it accepts writes again."""


@dataclass(frozen=True)
class RunRecovered:
    """The result of recovering a run of a previous coordinator; None: another coordinator has it and works on it."""

    experiment: str
    run: RecoveredRun | FinishedRun | None


@dataclass(frozen=True)
class RunRefused:
    """The experiment is refused: its config is wrong, or its run folder is taken."""

    experiment: str
    requester: Requester
    rejection: Rejected


@dataclass(frozen=True)
class LogRead:
    """What a client wanted to see has been read."""

    requester: Requester
    answer: LogText | Rejected


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class SelfVitals:
    """What the coordinator's own process has used since its start, and what for."""

    vitals: WorkerVitals
    load: CoordinatorLoad


@dataclass(frozen=True)
class HeldUp:
    """The disk of this run does not accept writes, or accepts them again."""

    experiment: str
    hold: Hold | None
    """None: it accepts them again."""


@dataclass(frozen=True)
class RunBroken:
    """What is to be written of this run cannot be written and never will be: the run has failed."""

    experiment: str
    reason: str
    traceback: str = ""


@dataclass(frozen=True)
class ShutdownRequested:
    """The operating system (or the user's Ctrl-C) asks the coordinator to end."""

    reason: str


@dataclass(frozen=True)
class HandoverRequested:
    """The coordinator is to end, and its next start to go on with its runs."""

    reason: str


Event = (
    Received
    | RunPrepared
    | RunRefused
    | LogRead
    | Tick
    | SelfVitals
    | HeldUp
    | RunBroken
    | ShutdownRequested
    | HandoverRequested
)
