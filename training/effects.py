"""What has to be recorded of a run, in both modes: reports, rows, checkpoints and lines.

Pure code decides what; it is written later. See recording.py for where each is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from remuda.logbook.lines import SourceLine, caller
from remuda.logbook.progress import ProgressRow
from remuda.logbook.reports import EventReport, Report
from remuda.logbook.series import EventKind
from remuda.wire.messages import CheckpointRecord, Counters, Role

Level = Literal["info", "warning", "error"]
_HERE = os.path.dirname(__file__)


@dataclass(frozen=True)
class RecordCheckpoint:
    """Add a saved checkpoint to index.json and delete those beyond `keep`."""

    experiment: str
    record: CheckpointRecord
    keep: int
    interrupted: bool
    """Link it as ckpt_interrupt.pth.tar as well."""
    in_use: tuple[int, ...] = ()
    """Checkpoints (by train_iter) that are being played: they are not deleted yet."""


@dataclass(frozen=True)
class RecordReward:
    """Add the mean return of a checkpoint's evaluation to index.json; the best one is linked as ckpt_best.pth.tar."""

    experiment: str
    train_iter: int
    reward: float
    best: bool
    task: str = ""
    """The task on which it was measured."""
    kwargs_json: str | None = None
    """See remuda.storage.checkpoint_index.NewTask."""


@dataclass(frozen=True)
class Emit:
    """Write a report to all logs of the experiment."""

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
    """A line in the commander's log, or in the coordinator's own log if `experiment` is None."""

    experiment: str | None
    text: str
    level: Level = "info"
    at: SourceLine = field(default_factory=lambda: caller(_HERE), compare=False, repr=False)
    """The place that speaks, which the log shows."""


@dataclass(frozen=True)
class Happened:
    """An event for the run's time series, with the counters of the moment when it is recorded."""

    experiment: str
    kind: EventKind
    text: str
    role: Role | None = None
    """The role of the worker that it is about."""
    worker: str | None = None
    """Its UUID."""

    def report(self, counters: Counters) -> EventReport:
        """The record for the time series."""
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
