"""The logbook of a role: shows each report in all views, and continues while a file cannot be written."""

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

from remuda.logbook.lines import LEVELS, SourceLine, TextLog
from remuda.logbook.progress import ProgressFile, ProgressRow
from remuda.logbook.reports import CallbackReport, LogTarget, Report, Topic, View
from remuda.logbook.series_file import SeriesFile
from remuda.logbook.tensorboard import EventWriter, as_markdown, hyperparameters
from remuda.logbook.timers import write_timers
from remuda.logbook.trackers import BackgroundSink

CALM_S = 60.0
"""A file that fails again within this time is still in the same outage: on a nearly full disk short records succeed and
long records fail."""
RETRY_S = (1.0, 2.0, 5.0, 10.0)
"""Pauses before a failed file is tried again; the last value repeats."""
Source = Literal[
    "coordinator",
    "commander",
    "commander_collector",
    "commander_evaluator",
    "collector",
    "evaluator",
    "reanalyzer",
    "inference",
    "learner",
    "buffer",
]
"""Source of a plain line; `remuda logs --source` takes the same names."""
WorkerSource = Literal["collector", "evaluator", "reanalyzer", "inference"]

SERVICES_END_S = 30.0
"""Most seconds that the services of sinks take to end."""


@dataclass
class _Outage:
    error: str
    for_good: bool = False
    missing: int = 0
    """Records, since this was reported last."""
    attempts: int = 0
    next_try_s: float = 0.0
    works_since_s: float | None = None
    again: bool = False
    """True after a failure that followed a report of success."""


@dataclass(frozen=True)
class OutageNotice:
    """A change in the state of a file, for people."""

    text: str
    works: bool
    """True if the file is written again."""


class Outages:
    """Writes to files, and remembers the files with an outage."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._outages: dict[int, _Outage] = {}

    def attempt(self, file: LogTarget, action: Callable[[], None], *, at_once: bool = False) -> OutageNotice | None:
        """Write a piece, unless the file failed and its pause is not over; `at_once` ignores the pause.

        Returns a notice when an outage of the file begins or ends.
        """
        outage = self._outages.get(id(file))
        if outage is not None and self._is_paused(outage, at_once):
            outage.missing += 1
            return None
        try:
            action()
        except OSError as error:
            return self._failed(file, outage, error)
        except Exception as error:
            self._outages[id(file)] = _Outage(str(error), for_good=True)
            return OutageNotice(f"{file.path} is given up; the run continues: {error}", works=False)
        return None if outage is None else self._worked(file, outage)

    def _is_paused(self, outage: _Outage, at_once: bool) -> bool:
        if outage.works_since_s is not None:
            return False
        return outage.for_good or (self._clock() < outage.next_try_s and not at_once)

    def _failed(self, file: LogTarget, known: _Outage | None, error: OSError) -> OutageNotice | None:
        outage = None if known is None or self._is_calm(known) else known
        if outage is None:
            outage = self._outages[id(file)] = _Outage(str(error))
            text = f"{file.path} cannot be written and will be tried again; the run continues: {error}"
            notice = OutageNotice(text, works=False)
        else:
            notice = None
            outage.again = outage.again or outage.works_since_s is not None
        outage.error, outage.works_since_s = str(error), None
        outage.next_try_s = self._clock() + RETRY_S[min(outage.attempts, len(RETRY_S) - 1)]
        outage.attempts += 1
        outage.missing += 1
        return notice

    def _worked(self, file: LogTarget, outage: _Outage) -> OutageNotice | None:
        """Report that the file works: at once after the first outage, after CALM_S following a repeated outage."""
        begins = outage.works_since_s is None
        if outage.works_since_s is None:
            outage.works_since_s = self._clock()
        calm = self._is_calm(outage)
        if calm:
            del self._outages[id(file)]
        if not (calm if outage.again else begins):
            return None
        text = f"{file.path} is written again; {outage.missing} records are missing: {outage.error}"
        outage.missing = 0
        return OutageNotice(text, works=True)

    def _is_calm(self, outage: _Outage) -> bool:
        return outage.works_since_s is not None and self._clock() - outage.works_since_s >= CALM_S

    def end(self, file: LogTarget) -> str | None:
        """End the use of a file; return a text if records are missing at its end."""
        outage = self._outages.pop(id(file), None)
        if outage is None or outage.for_good or not outage.missing:
            return None
        lacks = "lacks its last" if outage.works_since_s is None else "lacks"
        return f"{file.path} {lacks} {outage.missing} records: {outage.error}"


class RowSink(Protocol):
    """Receives the rows of progress.txt, in the form of ProgressRow.record."""

    @property
    def path(self) -> Path:
        """File or folder of the sink."""
        ...

    def row(self, record: Mapping[str, float]) -> None:
        """Receive a row. After an exception the run continues without this sink."""
        ...

    def close(self) -> None:
        """Close after the last row."""
        ...


@dataclass(frozen=True)
class _Timers:
    path: Path


@dataclass
class Logbook:
    """Shows each report in the views of its topic, and writes plain lines to the log of their source.

    A file that cannot be written never ends a run. It is reported and tried again after a pause. When the file works
    again, the number of missing records is reported. Not thread-safe.
    """

    logs: Mapping[Source, TextLog]
    views: Mapping[Topic, Sequence[View]]
    writers: Sequence[EventWriter] = ()
    progress_file: ProgressFile | None = None
    timers_file: Path | None = None
    series: SeriesFile | None = None
    sinks: list[RowSink] = field(default_factory=list["RowSink"])
    """Further sinks for the rows of progress.txt; see attach_sinks."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""

    def __post_init__(self) -> None:
        self._outages = Outages(self.clock)
        self._timers = None if self.timers_file is None else _Timers(self.timers_file)

    def emit(self, report: Report) -> None:
        """Show a report in every view of its topic. Raises KeyError for a topic without views in this role."""
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
        at: SourceLine | None = None,
    ) -> None:
        """Write a plain record to the log of a source. `at` is the source line in the record; None for the caller.
        Raises KeyError for a log that this role does not open."""
        log = self.logs[source]
        self._attempt(log, partial(log.write, LEVELS[level], text, at))

    def progress(self, row: ProgressRow) -> None:
        """Append a row to progress.txt, if this role writes the file, and pass the row to every sink."""
        file = self.progress_file
        if file is not None:
            self._attempt(file, partial(file.row, row))
        record = row.record() if self.sinks else {}
        for sink in self.sinks:
            self._attempt(sink, partial(sink.row, record))

    def rewind(self, train_iter: int) -> None:
        """Remove the curves after this update, before a learner continues from the update."""
        for writer in self.writers:
            self._attempt(writer, partial(writer.rewind, train_iter), at_once=True)

    def shows_evaluation(self, train_iter: int) -> bool:
        """True if the curves include the evaluation after this update."""
        return any(writer.newest_step("evaluator_iter") >= train_iter for writer in self.writers)

    def describe(self, settings: Mapping[str, JsonValue], *, train_iter: int) -> None:
        """Show the initial settings, or the settings of a run continued from this update, beside the curves."""
        for writer in self.writers[:1]:
            self._attempt(writer, partial(writer.config, as_markdown(settings), train_iter=train_iter))

    def conclude(self, settings: Mapping[str, JsonValue], results: Mapping[str, float]) -> None:
        """Show the results of the run (see results_of) beside its settings. May be called again."""
        compared, train_iter = hyperparameters(settings), int(results.get("train_iter", 0))
        for writer in self.writers[:1]:
            self._attempt(writer, partial(writer.results, compared, results, train_iter=train_iter))

    def timers(self, document: Mapping[str, object]) -> None:
        """Rewrite timers.json, if this role writes the file."""
        if self._timers is not None:
            self._attempt(self._timers, partial(write_timers, self._timers.path, document))

    def close(self) -> None:
        """Close every file, and report missing last records. May be called again."""
        others = (file for file in (self.progress_file, self.series) if file is not None)
        for file in (*self.sinks, *self.logs.values(), *self.writers, *others):
            self._report(self._outages.end(file))
            try:
                file.close()
            except Exception as error:  # a sink may raise anything
                self._report(f"{file.path} cannot be closed: {error}")

    @property
    def busy(self) -> bool:
        """True while services of sinks are working, also after `close`."""
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

    def _attempt(self, file: LogTarget, action: Callable[[], None], *, at_once: bool = False) -> None:
        notice = self._outages.attempt(file, action, at_once=at_once)
        if notice is None:
            return
        self._report(notice.text)
        if not isinstance(file, TextLog):
            log = self.logs.get("commander", next(iter(self.logs.values())))
            self._attempt(log, partial(log.warning, notice.text))
        elif notice.works:
            self._outages.attempt(file, partial(file.warning, notice.text))

    def _report(self, notice: str | None) -> None:
        if notice is not None:
            with contextlib.suppress(OSError, ValueError):  # closed, or full
                print(f"remuda: {notice}", file=sys.stderr)
