"""What an experiment reports while it runs and at its end: progress.txt, logs, curves, the time it took."""

from __future__ import annotations

from remuda.coordinator.effects import Step
from remuda.coordinator.experiment.parts import Parts
from remuda.training.commander.end import End
from remuda.training.effects import Emit, LogLine, WriteProgress, WriteTimers
from remuda.wire.messages import Counters


class ExperimentReports:
    """Changes nothing but what was reported last."""

    def __init__(self, experiment: str, parts: Parts) -> None:
        books = parts.books
        self._experiment = experiment
        self._status, self._dispatch = parts.status, parts.dispatch
        self._replay, self._flow, self._reanalysis = books.replay, books.flow, books.reanalysis
        self._commander, self._progress, self._vitals = books.commander, books.progress, books.vitals

    def due(self, now_s: float) -> list[Step]:
        """What is to be reported by now of the buffer and of the workers."""
        return self._buffer_reports(now_s) + self._vital_signs(now_s)

    def last(self, end: End, now_s: float) -> list[Step]:
        """What is left to be said when the run is over."""
        counters, dropped, id = self._status.counters(now_s), self._replay.dropped_rows, self._experiment
        return [
            *self.progress(counters, last=True),
            *self._buffer_reports(now_s, last=True),
            *self._vital_signs(now_s, last=True),
            *([LogLine(id, f"{dropped} rows were dropped: too old for the policy")] if dropped else []),
            *self._updates_owed(),
            *self._reanalysis.summary(),
            self._dispatch.outcomes.run_is_over(end, counters.wall_s),
        ]

    def _updates_owed(self) -> list[Step]:
        """A line about updates that the learner did not do; readers who compare runs should know it."""
        owed, per_insert = self._flow.updates_owed(), self._commander.config.buffer.samples_per_insert
        if not owed:
            return []
        if self._flow.owes == "batches":
            return [LogLine(self._experiment, f"batches that were collected and not learned from: {owed}")]
        asked = f"buffer.samples_per_insert {per_insert:g} asks for {self._flow.train_iter + owed}"
        return [LogLine(self._experiment, f"{owed} updates are owed: {self._flow.train_iter} were done, and {asked}")]

    def progress(self, counters: Counters, *, last: bool = False) -> list[Step]:
        """Rows of progress.txt that are due."""
        awaited = self._commander.awaited(counters)
        rows = self._progress.last(counters) if last else self._progress.due(counters, awaited)
        return [WriteProgress(self._experiment, row) for row in rows]

    def _buffer_reports(self, now_s: float, *, last: bool = False) -> list[Step]:
        counters = self._status.counters(now_s)
        if not counters.wall_s:
            return []  # its time has not begun
        reports = self._replay.reports(counters, now_s, newest=self._flow.policy, last=last)
        return [Emit(self._experiment, self._reanalysis.completed(report)) for report in reports]

    def _vital_signs(self, now_s: float, *, last: bool = False) -> list[Step]:
        report = self._vitals.due(self._status.counters(now_s), now_s, last=last)
        if report is None:
            return []
        document = self._vitals.document(report.wall_s)
        return [Emit(self._experiment, report), WriteTimers(self._experiment, document)]
