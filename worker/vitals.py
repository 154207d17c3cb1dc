"""Reports to the coordinator, every few seconds, how the time of a lease is spent."""

from __future__ import annotations

import time

import psutil

from remuda.logbook.timers import Timers
from remuda.wire.messages import TimedBlock, WorkerVitals

INTERVAL_S = 5.0


class VitalSigns:
    """Totals of a lease; each report replaces the former one."""

    def __init__(self, lease: int, timers: Timers) -> None:
        self._lease = lease
        self._timers = timers
        self._process = psutil.Process()
        self._cpu_before_s = time.process_time()
        self._due_s = time.monotonic() + INTERVAL_S

    def due(self) -> WorkerVitals | None:
        """Return a message every INTERVAL_S seconds, else None."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return None
        self._due_s = now_s + INTERVAL_S
        return self.now()

    def now(self) -> WorkerVitals:
        """The totals up to now."""
        return WorkerVitals(
            lease=self._lease,
            elapsed_s=self._timers.elapsed_s,
            cpu_s=time.process_time() - self._cpu_before_s,
            rss_bytes=self._process.memory_info().rss,
            blocks=[TimedBlock(path, *seen) for path, seen in self._timers.flat().items()],
        )
