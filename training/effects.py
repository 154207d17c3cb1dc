"""Records of a run in both modes: reports, rows, checkpoints and lines.

Pure code makes them; `record` writes them into the run's logs and files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from remuda.config.schema import ExperimentConfig
from remuda.logbook.book import Logbook
from remuda.logbook.lines import SourceLine, caller
from remuda.logbook.progress import ProgressColumns, ProgressRow
from remuda.logbook.reports import EventReport, Report
from remuda.logbook.row_sinks import attach_configured
from remuda.logbook.series import EventKind
from remuda.policy.algorithms import declaration
from remuda.storage.atomic import write_bytes
from remuda.storage.checkpoint_index import CheckpointIndex, drop_models
from remuda.storage.run_folder import RunFolder
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


def record(effect: RecordEffect, folder: RunFolder, log: Logbook, checkpoints: CheckpointIndex) -> None:
    """Carry out one effect. Raises OSError if the disk refuses, and CheckpointIndexError."""
    match effect:
        case Emit():
            log.emit(effect.report)
        case WriteProgress():
            log.progress(effect.row)
        case WriteTimers():
            log.timers(effect.document)
        case WriteLeague():
            write_bytes(folder.league, msgspec.json.format(msgspec.json.encode(effect.document)), durable=False)
        case LogLine():
            log.say("commander", effect.text, level=effect.level, at=effect.at)
        case RecordCheckpoint():
            gone = checkpoints.add(effect.record, keep=effect.keep, in_use=effect.in_use)
            drop_models(folder, gone)
            if effect.interrupted:
                checkpoints.link_interrupt(effect.record.train_iter)
        case RecordReward():
            checkpoints.set_reward(
                effect.train_iter, effect.reward, task=effect.task, kwargs_json=effect.kwargs_json, best=effect.best
            )


def open_logbook(
    of_mode: Callable[[RunFolder, ProgressColumns, Counters | None], Logbook],
    folder: RunFolder,
    config: ExperimentConfig,
    resumed: Counters | None,
    *,
    sinks: bool = True,
) -> Logbook:
    """Open a run's logs, cut off at the start of a resumed run; with the sinks of the config unless
    `sinks` is False."""
    declared = declaration(config)
    columns = ProgressColumns(
        tuple(declared.loss_columns),
        episode_info=config.env.episode_info,
        collected=declared.collected,
        evaluates=config.evaluator.episodes > 0,
        has_tasks=bool(config.env.schedule),
    )
    log = of_mode(folder, columns, resumed)
    if sinks:
        attach_configured(log, config, folder, resumed)
    return log
