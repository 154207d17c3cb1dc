"""Measures the coordinator itself for status and monitoring: turns, snapshots, throttled lines."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from importlib.metadata import version

import psutil

from remuda.coordinator.disk.disk import Disk
from remuda.coordinator.monitoring.snapshot import RunMeasures, Snapshot
from remuda.coordinator.state import Coordinator
from remuda.logbook.lines import unforgeable
from remuda.wire.messages import PROTOCOL_VERSION, CoordinatorLoad, RefusalCounts
from remuda.worker.process import open_files, open_files_limit

LONG_TURN_S = 0.05
"""Longer turns are logged, with their slow parts."""
WINDOW_S = 60.0
"""`status` shows the longest turn in this time."""
SAY_INTERVAL_S = 5.0
"""Time between two lines in the log; a line names the longest turn since the last line."""
DESCRIPTORS_SHARE = 0.8
"""Share of allowed open files and connections above which a warning is logged."""
_BUCKET_S = 5.0


class TurnWatch:
    """Measures turns in named parts, and keeps the longest of the last minute in constant memory."""

    def __init__(
        self,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        processor_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`say` gets a line about long turns. `processor_clock` is the processor time of this thread: if much less than
        the turn took, the machine was busy otherwise, or the process was stopped."""
        self._say = say
        self._clock = clock
        self._processor_clock = processor_clock
        self._buckets: deque[tuple[float, float]] = deque()
        """Longest turn by span of _BUCKET_S, with the start of the span."""
        self.longest_ever_s = 0.0
        self.turns = 0
        self._worst: tuple[float, str] = (0.0, "")
        """The longest turn not logged yet."""
        self._say_due_s = 0.0
        self._begun_s = self._part_s = clock()
        self._processor_s = processor_clock()
        self._parts: list[tuple[str, float]] = []

    def begin(self) -> None:
        """Begin a turn."""
        self._begun_s = self._part_s = self._clock()
        self._processor_s = self._processor_clock()
        self._parts.clear()

    def part(self, name: str) -> None:
        """The part of this name is done."""
        now_s = self._clock()
        self._parts.append((name, now_s - self._part_s))
        self._part_s = now_s

    def end(self) -> None:
        """End a turn."""
        took_s = self._part_s - self._begun_s
        self.turns += 1
        self._note(took_s)
        if took_s > LONG_TURN_S and took_s > self._worst[0]:
            worked_s = self._processor_clock() - self._processor_s
            name, part_s = max(self._parts, key=lambda part: part[1])
            text = f"a turn of the coordinator's loop took {took_s:.3f} s ({worked_s:.3f} s of processor time)"
            self._worst = took_s, f"{text}: {part_s:.3f} s to {name}"
        if self._worst[1] and self._part_s >= self._say_due_s:
            self._say(self._worst[1])
            self._worst, self._say_due_s = (0.0, ""), self._part_s + SAY_INTERVAL_S

    @property
    def longest_s(self) -> float:
        """The longest turn of the last minute."""
        self._forget()
        return max((longest_s for _, longest_s in self._buckets), default=0.0)

    def _note(self, took_s: float) -> None:
        self.longest_ever_s = max(self.longest_ever_s, took_s)
        if self._buckets and self._part_s - self._buckets[-1][0] < _BUCKET_S:
            begun_s, longest_s = self._buckets[-1]
            if took_s > longest_s:
                self._buckets[-1] = begun_s, took_s
        else:
            self._forget()
            self._buckets.append((self._part_s, took_s))

    def _forget(self) -> None:
        while self._buckets and self._clock() - self._buckets[0][0] > WINDOW_S:
            self._buckets.popleft()


class Measuring:
    """Takes snapshots of a coordinator's parts: a few milliseconds for a thousand workers."""

    def __init__(self, coordinator: Coordinator, disk: Disk, watch: TurnWatch, say: Callable[[str], None]) -> None:
        """`say` gets a warning about many open files."""
        self._coordinator = coordinator
        self._disk = disk
        self._watch = watch
        self._say = say
        self.load = CoordinatorLoad()
        """Load of the process, as last measured."""
        self._version = version("remuda")
        self._begun_s = time.monotonic()
        self._process = psutil.Process()

    def measure_load(self) -> None:
        """Measure the load of the process."""
        open_now, limit = open_files(), open_files_limit()
        if open_now > DESCRIPTORS_SHARE * limit:
            self._say(f"{open_now} of {limit} files and connections are open: raise the limit (ulimit -n)")
        self.load = CoordinatorLoad(self._watch.longest_s, self._watch.longest_ever_s, open_now, limit)

    def __call__(self, refusals: RefusalCounts, malformed: int) -> Snapshot:
        """Return a snapshot of this moment, with the last load."""
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
            descriptors=self.load.descriptors,
            descriptor_limit=self.load.descriptor_limit,
            rss_bytes=self._process.memory_info().rss,
            cpu_s=time.process_time(),
            workers=self._coordinator.membership.counts(),
            refusals=refusals,
            malformed=malformed,
            journal_lag_s=self._disk.lag_s,
            held_up=len(experiments.held_up),
            runs=[RunMeasures.of(each.status(now_s)) for each in experiments],
        )


INTERVAL_S = 5.0
"""Time between two lines of a kind."""


class ThrottledLines:
    """Prints lines of a kind to standard error; drops lines that come too soon after the last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_s = 0.0

    @property
    def due(self) -> bool:
        """True if the next line would be printed."""
        return self._clock() >= self._due_s

    def say(self, text: str) -> None:
        """Print a line, if due."""
        if self.due:
            self._due_s = self._clock() + INTERVAL_S
            print(unforgeable(text), file=sys.stderr, flush=True)
