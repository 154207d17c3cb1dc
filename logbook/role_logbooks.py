"""The logbooks of all roles: files of a role, and views of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from remuda.logbook.book import Logbook, WorkerSource
from remuda.logbook.lines import TextLog
from remuda.logbook.progress import ProgressColumns, ProgressFile
from remuda.logbook.reports import (
    BufferThroughputReport,
    FilmReport,
    HistogramReport,
    Report,
    Topic,
    View,
    VitalsReport,
)
from remuda.logbook.series_file import SeriesFile, SeriesView
from remuda.logbook.tensorboard import EventWriter
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Counters


@dataclass(frozen=True)
class TextView:
    """Shows reports as records of a text log."""

    file: TextLog

    def show(self, report: Report) -> None:
        self.file.info(report.text())


@dataclass(frozen=True)
class CurveView:
    """Shows the finite numbers of reports as curves with one prefix; histograms and films once per train_iter."""

    file: EventWriter
    prefix: str = ""

    def show(self, report: Report) -> None:
        """Add a point per value and axis. Seconds are the only axis of throughput and vitals."""
        train_iter = report.train_iter
        match report:
            case HistogramReport():
                self.file.histograms(report.of, report.histograms, train_iter=train_iter)
            case FilmReport():
                self.file.film(report.film, train_iter=train_iter)
            case BufferThroughputReport() | VitalsReport():
                self.file.throughput(self.prefix, report.fields(), wall_s=report.wall_s)
            case _:
                self.file.scalars(self.prefix, report.fields(), train_iter=train_iter, env_step=report.env_step)


def serial_logbook(run: RunFolder, columns: ProgressColumns, resumed: Counters | None = None) -> Logbook:
    """Open all logs of a serial run. Messages of the commander are in the evaluator's log.

    `resumed` are the counters of a resumed run: later points of curves and later rows are removed.
    """
    buffer, collector = TextLog(run.buffer_log), TextLog(run.serial_collector_log)
    evaluator, learner = TextLog(run.serial_evaluator_log), TextLog(run.learner_log)
    curves, file = EventWriter(run.serial_tb, resumed=resumed), SeriesFile(run.series, resumed=resumed)
    series, pages = SeriesView(file), CurveView(curves)
    return Logbook(
        {"buffer": buffer, "collector": collector, "evaluator": evaluator, "commander": evaluator, "learner": learner},
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
            "callback_histogram": (pages,),
        },
        writers=(curves,),
        progress_file=_progress(run, columns, resumed),
        timers_file=run.timers,
        series=file,
    )


def learner_logbook(run: RunFolder, *, resumed: Counters | None = None) -> Logbook:
    """Open the files of a learner worker."""
    log, curves = TextLog(run.learner_log), EventWriter(run.learner_tb, resumed=resumed)
    views: dict[Topic, Sequence[View]] = {
        "learn": (TextView(log), CurveView(curves, "learner")),
        "weights": (CurveView(curves),),
    }
    return Logbook({"learner": log}, views, (curves,))


_WORKER_TOPICS: Mapping[WorkerSource, Sequence[Topic]] = {
    "collector": ("collect",),
    "evaluator": ("episode", "evaluation"),
    "reanalyzer": (),
    "inference": (),
}


def worker_logbook(run: RunFolder, role: WorkerSource, uuid: str, incarnation: int) -> Logbook:
    """Open the log of a worker; folders for reanalyzers and inference workers exist only in runs with some."""
    path = run.worker_log(role, uuid, incarnation)
    path.parent.mkdir(exist_ok=True)
    log = TextLog(path)
    return Logbook({role: log}, {topic: (TextView(log),) for topic in _WORKER_TOPICS[role]})


def commander_logbook(run: RunFolder, columns: ProgressColumns, resumed: Counters | None = None) -> Logbook:
    """Open the coordinator's files of an experiment.

    The merged evaluation is in the commander's log and in the curves; the share of each evaluator is in the commander's
    evaluator log.
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
            "actions": (CurveView(curves),),
            "film": (CurveView(curves),),
            "callback": (TextView(commander), CurveView(curves, "callback"), series),
            "callback_histogram": (CurveView(curves),),
        },
        writers=(curves, buffer_curves),
        progress_file=_progress(run, columns, resumed),
        timers_file=run.timers,
        series=file,
    )


def _progress(run: RunFolder, columns: ProgressColumns, resumed: Counters | None) -> ProgressFile:
    return ProgressFile(run.progress, columns, resumed_env_step=None if resumed is None else resumed.env_step)
