"""What a coordinator measures of itself for its monitoring."""

from __future__ import annotations

import time
from importlib.metadata import version

import psutil

from remuda.coordinator.disk.disk import Disk
from remuda.coordinator.monitoring.snapshot import RunMeasures, Snapshot
from remuda.coordinator.state import Coordinator
from remuda.coordinator.turn_watch import TurnWatch
from remuda.wire.messages import PROTOCOL_VERSION, CoordinatorLoad, RefusalCounts


class Measuring:
    """Takes snapshots of a coordinator's parts: a few milliseconds for a thousand workers."""

    def __init__(self, coordinator: Coordinator, disk: Disk, watch: TurnWatch) -> None:
        self._coordinator = coordinator
        self._disk = disk
        self._watch = watch
        self._version = version("remuda")
        self._begun_s = time.monotonic()
        self._process = psutil.Process()

    def __call__(self, load: CoordinatorLoad, refusals: RefusalCounts, malformed: int) -> Snapshot:
        """A snapshot of this moment; `load` was measured some seconds ago."""
        now_s = time.monotonic()
        experiments = self._coordinator.experiments
        return Snapshot(
            measured_s=now_s,
            version=self._version,
            protocol=PROTOCOL_VERSION,
            uptime_s=now_s - self._begun_s,
            draining=self._coordinator.ending,
            turns=self._watch.turns,
            longest_turn_s=self._watch.longest_s,
            descriptors=load.descriptors,
            descriptor_limit=load.descriptor_limit,
            rss_bytes=self._process.memory_info().rss,
            cpu_s=time.process_time(),
            workers=self._coordinator.worker_counts,
            refusals=refusals,
            malformed=malformed,
            journal_lag_s=self._disk.lag_s,
            held_up=len(experiments.held_up),
            runs=[RunMeasures.of(each.status(now_s)) for each in experiments],
        )
