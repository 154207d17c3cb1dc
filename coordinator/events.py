"""What happens to the coordinator: everything the state machine is told."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from remuda.buffer.index import Prioritized
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import Asked, PrepareRun
from remuda.coordinator.memory import RunMemory
from remuda.coordinator.resumed import Resumed
from remuda.wire.envelope import Envelope
from remuda.wire.messages import ChunkMeta, IndexedChunk, LogText, Rejected, WorkerVitals


@dataclass(frozen=True)
class Recovered:
    """A run as the journal has it, in the hands of a coordinator that was started again, or is to resume it."""

    memory: RunMemory
    chunks: tuple[IndexedChunk, ...]
    """Live chunks whose payload is still there, in row order."""
    priorities: Prioritized | None


class Received(Struct, frozen=True):
    """An envelope came from this peer."""

    peer: bytes
    envelope: Envelope


@dataclass(frozen=True)
class RunPrepared:
    """The run folder of a submitted experiment is ready."""

    request: PrepareRun
    config: ExperimentConfig
    run_dir: str
    policy_file: str
    resumed: Resumed | None = None
    """Where a run that is resumed goes on."""
    recovered: Recovered | None = None
    """Its experience, as the journal of its former life has it."""
    uncounted: tuple[ChunkMeta, ...] = ()
    """Payloads of that life that nobody will announce any more: they are counted now."""


@dataclass(frozen=True)
class RunRefused:
    """The experiment cannot be: wrong config, or its run folder is taken."""

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
class Weighed:
    """What the coordinator's own process has used since it was started, and what for."""

    vitals: WorkerVitals


@dataclass(frozen=True)
class ShutdownRequested:
    """The operating system (or the user's Ctrl-C) asks the coordinator to end."""

    reason: str


Event = Received | RunPrepared | RunRefused | LogRead | Tick | Weighed | ShutdownRequested
