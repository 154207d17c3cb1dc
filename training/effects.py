"""What is to be recorded of a run, in both modes: reports, rows, checkpoints and lines. Decided purely, written later.

See recording.py for where each goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from remuda.logbook.progress import ProgressRow
from remuda.logbook.reports import Report
from remuda.logbook.run_events import EventReport
from remuda.logbook.series import EventKind
from remuda.wire.messages import CheckpointRecord, Counters, Role

Level = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class RecordCheckpoint:
    """Enter a saved checkpoint in index.json and prune what is beyond `keep`."""

    experiment: str
    record: CheckpointRecord
    keep: int
    interrupted: bool
    """Link it as ckpt_interrupt.pth.tar as well."""
    in_use: tuple[int, ...] = ()
    """Checkpoints (by train_iter) that are being played: not pruned yet."""


@dataclass(frozen=True)
class RecordReward:
    """Enter what a checkpoint's evaluation gave; the best one is linked as ckpt_best.pth.tar."""

    experiment: str
    train_iter: int
    reward: float
    best: bool


@dataclass(frozen=True)
class Emit:
    """Fan a report out to the experiment's logs."""

    experiment: str
    report: Report


@dataclass(frozen=True)
class WriteProgress:
    """Append a row to progress.txt."""

    experiment: str
    row: ProgressRow


@dataclass(frozen=True)
class WriteTimers:
    """Write timers.json again."""

    experiment: str
    document: Mapping[str, object]


@dataclass(frozen=True)
class LogLine:
    """One line in the commander's log, or in the coordinator's own where `experiment` is None."""

    experiment: str | None
    text: str
    level: Level = "info"


@dataclass(frozen=True)
class Happened:
    """An event for the run's time series, with the counters of the moment when it is recorded."""

    experiment: str
    kind: EventKind
    text: str
    role: Role | None = None
    """Of the worker that it is about."""
    worker: str | None = None
    """Its UUID."""

    def report(self, counters: Counters) -> EventReport:
        """As the time series shows it."""
        return EventReport(
            train_iter=counters.train_iter,
            env_step=counters.env_step,
            wall_s=counters.wall_s,
            kind=self.kind,
            what=self.text,
            role=self.role,
            worker=self.worker,
        )


RecordEffect = RecordCheckpoint | RecordReward | Emit | WriteProgress | WriteTimers | LogLine
