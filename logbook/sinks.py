"""The views of a report: a text log, or curves and other pages in TensorBoard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from remuda.logbook.lines import TextLog
from remuda.logbook.outages import Written
from remuda.logbook.page_reports import FilmReport, HistogramReport
from remuda.logbook.reports import Report
from remuda.logbook.tensorboard import EventWriter
from remuda.logbook.training_reports import BufferThroughputReport
from remuda.logbook.vitals import VitalsReport


class View(Protocol):
    """Shows reports in one file."""

    @property
    def file(self) -> Written:
        """Path of the file."""
        ...

    def show(self, report: Report) -> None:
        """Write the report there. Raises OSError if that fails."""
        ...


@dataclass(frozen=True)
class TextView:
    """Shows reports as records of a text log."""

    log: TextLog

    @property
    def file(self) -> Written:
        """Path of the file."""
        return self.log

    def show(self, report: Report) -> None:
        """Write the report's text."""
        self.log.info(report.text())


@dataclass(frozen=True)
class CurveView:
    """Shows the finite numbers of reports as curves, all under one prefix."""

    writer: EventWriter
    prefix: str

    @property
    def file(self) -> Written:
        """Path of the file."""
        return self.writer

    def show(self, report: Report) -> None:
        """Add a point per value and axis; throughput and vitals have the seconds as their one axis."""
        if isinstance(report, BufferThroughputReport | VitalsReport):
            self.writer.throughput(self.prefix, report.fields(), wall_s=report.wall_s)
        else:
            self.writer.scalars(self.prefix, report.fields(), train_iter=report.train_iter, env_step=report.env_step)


@dataclass(frozen=True)
class PageView:
    """Shows histograms and films, each once per train_iter."""

    writer: EventWriter

    @property
    def file(self) -> Written:
        """Path of the file."""
        return self.writer

    def show(self, report: Report) -> None:
        """Show the report on the page that is for its kind."""
        match report:
            case HistogramReport():
                self.writer.histograms(report.of, report.histograms, train_iter=report.train_iter)
            case FilmReport():
                self.writer.film(report.film, train_iter=report.train_iter)
            case _:
                raise TypeError(f"TensorBoard has no other page for {type(report).__name__}")
