"""Records of a run in both modes: reports, rows, checkpoints and lines.

Pure code makes them; recording.py writes them.
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
    """Add a saved checkpoint to index.json and delete checkpoints beyond `keep`."""

    experiment: str
    record: CheckpointRecord
    keep: int
    interrupted: bool
    """Also link it as ckpt_interrupt.pth.tar."""
    in_use: tuple[int, ...] = ()
    """Checkpoints, by train_iter, in use by evaluations; not deleted yet."""


@dataclass(frozen=True)
class RecordReward:
    """Add the mean return of a checkpoint's evaluation to index.json; link the best as ckpt_best.pth.tar."""

    experiment: str
    train_iter: int
    reward: float
    best: bool
    task: str = ""
    """The measured task."""
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
class WriteLeague:
    """Write league.json again."""

    experiment: str
    document: Mapping[str, object]


@dataclass(frozen=True)
class LogLine:
    """A line in the commander's log; with `experiment` None, in the coordinator's own log."""

    experiment: str | None
    text: str
    level: Level = "info"
    at: SourceLine = field(default_factory=lambda: caller(_HERE), compare=False, repr=False)
    """Source line shown in the log."""


@dataclass(frozen=True)
class Happened:
    """An event for the run's time series, recorded with the present counters."""

    experiment: str
    kind: EventKind
    text: str
    role: Role | None = None
    """Role of the worker concerned."""
    worker: str | None = None
    """UUID of the worker."""
    policy: str | None = None
    """Policy concerned, by name; None: all."""

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


RecordEffect = RecordCheckpoint | RecordReward | Emit | WriteProgress | WriteTimers | WriteLeague | LogLine
