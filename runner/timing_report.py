"""Where a serial run's time goes: the same report that workers send to their coordinator, within one process."""

from __future__ import annotations

from remuda.config.schema import ExperimentConfig
from remuda.logbook.book import Logbook
from remuda.logbook.timers import Timers
from remuda.training.vitals import Vitals
from remuda.wire.messages import Counters
from remuda.worker.vitals import VitalSigns

ROLE = "serial"


class TimingReport:
    """Writes the table into the log from time to time, and timers.json with it."""

    def __init__(self, config: ExperimentConfig, logbook: Logbook, timers: Timers, now_s: float) -> None:
        self._logbook = logbook
        self._signs = VitalSigns(1, timers)
        self._interval_s = config.log.buffer_interval_s
        self._vitals = Vitals(self._interval_s, now_s)
        self._due_s = now_s + self._interval_s

    def report(self, counters: Counters, now_s: float, *, last: bool = False) -> None:
        """Write the table if it is due; the `last` one always is."""
        if now_s < self._due_s and not last:
            return
        self._due_s = now_s + self._interval_s
        self._vitals.told(ROLE, ROLE, self._signs.now())
        report = self._vitals.due(counters, now_s, last=True)
        if report is not None:
            self._logbook.emit(report)
            self._logbook.timers(self._vitals.document(counters.wall_s))
