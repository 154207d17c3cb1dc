"""What happens to the coordinator: everything the state machine is told."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import Asked, PrepareRun
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.experiment.finished import FinishedRun
from remuda.training.journal_entry import Recovered
from remuda.training.snapshot import ResumePoint, RunSnapshot
from remuda.wire.envelope import Envelope
from remuda.wire.messages import ChunkMeta, CoordinatorLoad, LogText, Rejected, WorkerVitals


class Received(Struct, frozen=True):
    """An envelope came from this peer."""

    peer: bytes
    envelope: Envelope


@dataclass(frozen=True)
class PreparedRun:
    """What was found and made in the run folder of a submitted experiment."""

    request: PrepareRun
    config: ExperimentConfig
    run_dir: str
    policy_file: str
    resumed: ResumePoint | None = None
    """Where a run that is resumed goes on."""
    recovered: Recovered | None = None
    """Its experience, as the journal of its earlier incarnation has it."""
    uncounted: tuple[ChunkMeta, ...] = ()
    """Payloads of that incarnation that nobody will announce any more: they are counted now."""


@dataclass(frozen=True)
class RunPrepared:
    """The run folder of a submitted experiment is ready, and so is all that the experiment begins with."""

    request: PrepareRun
    experiment: Experiment


@dataclass(frozen=True)
class TakenUp:
    """A run of a previous coordinator, rebuilt from its journal."""

    experiment: Experiment
    snapshot: RunSnapshot


@dataclass(frozen=True)
class RunRecovered:
    """What became of a run of a previous coordinator; None: another coordinator has it, and it is well."""

    experiment: str
    run: TakenUp | FinishedRun | None


@dataclass(frozen=True)
class RunRefused:
    """The experiment cannot be: wrong config, or its run folder is taken."""

    experiment: str
    asked: Asked
    rejection: Rejected


@dataclass(frozen=True)
class LogRead:
    """What a client wanted to see has been read."""

    asked: Asked
    answer: LogText | Rejected


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class SelfVitals:
    """What the coordinator's own process has used since it was started, and what for."""

    vitals: WorkerVitals
    load: CoordinatorLoad


@dataclass(frozen=True)
class HeldUp:
    """The disk of this run does not take what is to be written, or does so again."""

    experiment: str
    why: str | None
    """None: it does again."""


@dataclass(frozen=True)
class RunBroken:
    """What is to be written of this run cannot be written, and will not be: it has failed."""

    experiment: str
    reason: str
    traceback: str = ""


@dataclass(frozen=True)
class ShutdownRequested:
    """The operating system (or the user's Ctrl-C) asks the coordinator to end."""

    reason: str


Event = Received | RunPrepared | RunRefused | LogRead | Tick | SelfVitals | HeldUp | RunBroken | ShutdownRequested
