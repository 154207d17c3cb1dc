"""The logbook: shows each report in all its views, and opens the files for each role and mode."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol

from pydantic import JsonValue

from remuda.logbook.background import BackgroundSink
from remuda.logbook.lines import LEVELS, Place, TextLog
from remuda.logbook.outages import Outages, Written
from remuda.logbook.pages import as_markdown, hyperparameters
from remuda.logbook.progress import ProgressFile, ProgressRow
from remuda.logbook.reports import Report, Topic
from remuda.logbook.series_file import SeriesFile
from remuda.logbook.series_view import SeriesView
from remuda.logbook.sinks import CurveView, PageView, TextView, View
from remuda.logbook.tensorboard import EventWriter
from remuda.logbook.timers import write_timers
from remuda.logbook.training_reports import CallbackReport
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Counters

Source = Literal[
    "coordinator",
    "commander",
    "commander_collector",
    "commander_evaluator",
    "collector",
    "evaluator",
    "reanalyzer",
    "learner",
    "buffer",
]
"""Where a plain line comes from; the names that `remuda logs --source` takes."""

SERVICES_END_S = 30.0
"""How long the services of sinks may take to end."""


class RowSink(Protocol):
    """Takes the rows of progress.txt, as ProgressRow.record has them."""

    @property
    def path(self) -> Path:
        """Its file or folder."""
        ...

    def row(self, record: Mapping[str, float]) -> None:
        """Take a row. If it raises, the run continues without this sink."""
        ...

    def close(self) -> None:
        """Note that no more rows come."""
        ...


@dataclass(frozen=True)
class _Timers:
    path: Path


@dataclass
class Logbook:
    """Shows each report in the views of its topic, and writes plain lines to the log of their source.

    A run never fails because of it: a file that cannot be written is reported and tried again after a pause; when it
    works again, that is reported with the number of missing records. The other files are written as usual. Not
    thread-safe.
    """

    logs: Mapping[Source, TextLog]
    views: Mapping[Topic, Sequence[View]]
    writers: Sequence[EventWriter] = ()
    progress_file: ProgressFile | None = None
    timers_file: Path | None = None
    series: SeriesFile | None = None
    sinks: list[RowSink] = field(default_factory=list["RowSink"])
    """Other places that get the rows of progress.txt; see attach_sinks."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""

    def __post_init__(self) -> None:
        self._outages = Outages(self.clock)
        self._timers = None if self.timers_file is None else _Timers(self.timers_file)

    def emit(self, report: Report) -> None:
        """Show a report in every view of its topic. Raises KeyError if this role has none for it."""
        for view in self.views[report.topic]:
            self._attempt(view.file, partial(view.show, report))
        if isinstance(report, CallbackReport):
            for sink in self.sinks:
                if isinstance(sink, BackgroundSink) and sink.takes_callbacks:
                    self._attempt(sink, partial(sink.row, report.record()))

    def say(
        self,
        source: Source,
        text: str,
        *,
        level: Literal["info", "warning", "error"] = "info",
        at: Place | None = None,
    ) -> None:
        """Write a plain record to the log of a source. `at` is the place that speaks; None for the caller. Raises
        KeyError if this role does not open that log."""
        log = self.logs[source]
        self._attempt(log, partial(log.write, LEVELS[level], text, at))

    def progress(self, row: ProgressRow) -> None:
        """Append a row to progress.txt, if this role writes it, and pass it to every sink."""
        file = self.progress_file
        if file is not None:
            self._attempt(file, partial(file.row, row))
        record = row.record() if self.sinks else {}
        for sink in self.sinks:
            self._attempt(sink, partial(sink.row, record))

    def rewind(self, train_iter: int) -> None:
        """Remove the curves after this update, from which a learner continues."""
        for writer in self.writers:
            self._attempt(writer, partial(writer.rewind, train_iter), at_once=True)

    def shows_evaluation(self, train_iter: int) -> bool:
        """Whether the curves have the evaluation after this update."""
        return any(writer.newest_step("evaluator_iter") >= train_iter for writer in self.writers)

    def describe(self, settings: Mapping[str, JsonValue], *, train_iter: int) -> None:
        """Show the settings with which the run begins, or continues from this update, beside the curves."""
        for writer in self.writers[:1]:
            self._attempt(writer, partial(writer.config, as_markdown(settings), train_iter=train_iter))

    def conclude(self, settings: Mapping[str, JsonValue], results: Mapping[str, float]) -> None:
        """Show how the run ended (see results_of) beside its settings. May be called again."""
        compared, train_iter = hyperparameters(settings), int(results.get("train_iter", 0))
        for writer in self.writers[:1]:
            self._attempt(writer, partial(writer.results, compared, results, train_iter=train_iter))

    def timers(self, document: Mapping[str, object]) -> None:
        """Rewrite timers.json, if this role writes it."""
        if self._timers is not None:
            self._attempt(self._timers, partial(write_timers, self._timers.path, document))

    def close(self) -> None:
        """Close every file, and report those whose last records are missing. May be called again."""
        others = (file for file in (self.progress_file, self.series) if file is not None)
        for file in (*self.sinks, *self.logs.values(), *self.writers, *others):
            self._tell(self._outages.end(file))
            try:
                file.close()
            except Exception as error:  # a sink may raise anything
                self._tell(f"{file.path} cannot be closed: {error}")

    @property
    def busy(self) -> bool:
        """Whether services of sinks are still working, also after `close`."""
        return any(isinstance(sink, BackgroundSink) and sink.busy for sink in self.sinks)

    def finish(self, deadline_s: float) -> None:
        """After `close`, wait until `deadline_s` (time.monotonic) for the services of sinks."""
        for sink in self.sinks:
            if isinstance(sink, BackgroundSink):
                self._attempt(sink, partial(sink.finish, deadline_s))

    def __enter__(self) -> Logbook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        self.finish(time.monotonic() + SERVICES_END_S)

    def _attempt(self, file: Written, action: Callable[[], None], *, at_once: bool = False) -> None:
        news = self._outages.attempt(file, action, at_once=at_once)
        if news is None:
            return
        self._tell(news.text)
        if not isinstance(file, TextLog):
            log = self.logs.get("commander", next(iter(self.logs.values())))
            self._attempt(log, partial(log.warning, news.text))
        elif news.works:
            self._outages.attempt(file, partial(file.warning, news.text))

    def _tell(self, news: str | None) -> None:
        if news is not None:
            with contextlib.suppress(OSError, ValueError):  # nobody reads it
                print(f"remuda: {news}", file=sys.stderr)


def serial_logbook(
    run: RunFolder,
    loss_columns: Sequence[str] | None,
    *,
    episode_info: Sequence[str] = (),
    collected: Sequence[str] = (),
    evaluates: bool = True,
    has_tasks: bool = False,
    resumed: Counters | None = None,
) -> Logbook:
    """Open all logs of a serial run. Messages of the commander are in the evaluator's log.

    `episode_info` names further numbers that episodes report, `collected` means over the steps that are collected; they
    get columns in progress.txt. Evaluations get columns if the run `evaluates`. `resumed` are the counters a resumed
    run continues from: curves and progress rows beyond them are cut off.
    """
    buffer, collector = TextLog(run.buffer_log), TextLog(run.serial_collector_log)
    evaluator, learner = TextLog(run.serial_evaluator_log), TextLog(run.learner_log)
    curves, file = EventWriter(run.serial_tb, resumed=resumed), SeriesFile(run.series, resumed=resumed)
    series, pages = SeriesView(file), PageView(curves)
    return Logbook(
        logs={
            "buffer": buffer,
            "collector": collector,
            "evaluator": evaluator,
            "commander": evaluator,
            "learner": learner,
        },
        views={
            "buffer_sample": (TextView(buffer), CurveView(curves, "buffer")),
            "buffer_throughput": (TextView(buffer), CurveView(curves, "buffer"), series),
            "collect": (TextView(collector), CurveView(curves, "collector"), series),
            "episode": (TextView(evaluator),),
            "evaluation": (TextView(evaluator), CurveView(curves, "evaluator"), series),
            "event": (series,),
            "learn": (TextView(learner), CurveView(curves, "learner")),
            "vitals": (TextView(evaluator), CurveView(curves, "vitals"), series),
            "weights": (pages,),
            "actions": (pages,),
            "film": (pages,),
            "callback": (TextView(evaluator), CurveView(curves, "callback"), series),
        },
        writers=(curves,),
        progress_file=_progress(run, loss_columns, episode_info, collected, evaluates, has_tasks, resumed),
        timers_file=run.timers,
        series=file,
    )


def learner_logbook(run: RunFolder, *, resumed: Counters | None = None) -> Logbook:
    """Open what a learner worker writes."""
    log, curves = TextLog(run.learner_log), EventWriter(run.learner_tb, resumed=resumed)
    views: dict[Topic, Sequence[View]] = {
        "learn": (TextView(log), CurveView(curves, "learner")),
        "weights": (PageView(curves),),
    }
    return Logbook({"learner": log}, views, (curves,))


def collector_logbook(run: RunFolder, uuid: str, incarnation: int) -> Logbook:
    """Open what a collector worker writes."""
    log = TextLog(run.collector_log(uuid, incarnation))
    return Logbook({"collector": log}, {"collect": (TextView(log),)})


def evaluator_logbook(run: RunFolder, uuid: str, incarnation: int) -> Logbook:
    """Open what an evaluator worker writes."""
    log = TextLog(run.evaluator_log(uuid, incarnation))
    return Logbook({"evaluator": log}, {"episode": (TextView(log),), "evaluation": (TextView(log),)})


def reanalyzer_logbook(run: RunFolder, uuid: str, incarnation: int) -> Logbook:
    """Open what a reanalyzer worker writes, in a folder that is there only in runs with reanalyzers."""
    path = run.reanalyzer_log(uuid, incarnation)
    path.parent.mkdir(exist_ok=True)
    return Logbook({"reanalyzer": TextLog(path)}, {})


def commander_logbook(
    run: RunFolder,
    loss_columns: Sequence[str],
    *,
    episode_info: Sequence[str] = (),
    collected: Sequence[str] = (),
    evaluates: bool = True,
    has_tasks: bool = False,
    resumed: Counters | None = None,
) -> Logbook:
    """Open what the coordinator writes for one experiment.

    The evaluation as a whole stands in the commander's log and in the curves; each evaluator's share of it in the
    commander's evaluator log.
    """
    buffer, commander = TextLog(run.buffer_log), TextLog(run.commander_log)
    collectors, evaluators = TextLog(run.commander_collector_log), TextLog(run.commander_evaluator_log)
    curves = EventWriter(run.commander_tb, resumed=resumed)
    buffer_curves, file = EventWriter(run.buffer_tb, resumed=resumed), SeriesFile(run.series, resumed=resumed)
    series = SeriesView(file)
    return Logbook(
        logs={
            "coordinator": TextLog(run.coordinator_log),
            "commander": commander,
            "commander_collector": collectors,
            "commander_evaluator": evaluators,
            "buffer": buffer,
        },
        views={
            "buffer_sample": (TextView(buffer), CurveView(buffer_curves, "buffer")),
            "buffer_throughput": (TextView(buffer), CurveView(buffer_curves, "buffer"), series),
            "collector_worker": (TextView(collectors), CurveView(curves, "collector"), series),
            "evaluator_worker": (TextView(evaluators),),
            "evaluation": (TextView(commander), CurveView(curves, "evaluator"), series),
            "event": (series,),
            "vitals": (TextView(commander), CurveView(curves, "vitals"), series),
            "actions": (PageView(curves),),
            "film": (PageView(curves),),
            "callback": (TextView(commander), CurveView(curves, "callback"), series),
        },
        writers=(curves, buffer_curves),
        progress_file=_progress(run, loss_columns, episode_info, collected, evaluates, has_tasks, resumed),
        timers_file=run.timers,
        series=file,
    )


def _progress(
    run: RunFolder,
    loss_columns: Sequence[str] | None,
    episode_info: Sequence[str],
    collected: Sequence[str],
    evaluates: bool,
    has_tasks: bool,
    resumed: Counters | None,
) -> ProgressFile:
    step = None if resumed is None else resumed.env_step
    return ProgressFile(
        run.progress,
        loss_columns,
        episode_info=episode_info,
        collected=collected,
        evaluates=evaluates,
        has_tasks=has_tasks,
        resumed_env_step=step,
    )
