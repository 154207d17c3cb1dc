"""Reads a run's time series for the page: a bounded part, continued as the file grows."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from remuda.logbook.series import (
    Begin,
    Evaluation,
    Event,
    Interval,
    Logged,
    Moment,
    Usage,
    decode_first,
    decode_records,
    marker,
)
from remuda.page.growing import FloatArray, GrowingReader, Pyramid, Reduction
from remuda.storage.record_file import LONGEST_BYTES
from remuda.storage.untrusted import open_regular
from remuda.training.vitals import ROLES

_WINDOWS_BYTES = (4 << 10, 64 << 10)
"""Bytes searched for a record after an offset: first a few, then more."""
_END_BYTES = (64 << 10, 2 * LONGEST_BYTES)
"""Bytes searched for the newest record before the end."""
_RecordT = TypeVar("_RecordT", bound=Interval | Evaluation | Logged)
HELD_UP = "held_up"
MOST_SPANS = 1_000
"""Most spans of one kind; the newest are kept."""
_COMES = ("worker_joined", "worker_back")
_GOES = ("worker_left", "worker_died", "worker_failed")
X_NAMES = ("wall_s", "env_step", "train_iter")
"""Axes of curves."""
INTERVAL_NAMES = (
    "env_steps_per_s",
    "train_iters_per_s",
    "return_mean",
    "buffer_rows",
    "policy_lag",
    "samples_per_insert",
)
EVALUATION_NAMES = ("return_mean", "return_std")
USAGE_NAMES = ("processes", "cpu_cores", "rss_mib")
KINDS = ("work", "env", "wait_data", "wait_policy", "wait_credit", "wait_other")
"""Kinds of time in the records of the series."""
MOST_EVENTS = 500
"""Most events; the newest are kept."""
MOST_LOGGED = 100
"""Most names of numbers logged by callbacks; the first are kept."""
_BLOCK_BYTES = 256 << 10
"""Of the file, read and added to the buckets together."""
_THREE: tuple[Reduction, ...] = ("last", "min", "max")
_LAST: tuple[Reduction, ...] = ("last",)
_SUM: tuple[Reduction, ...] = ("sum",)
_OF_USAGE = _SUM * (len(USAGE_NAMES) + len(KINDS))
INTERVAL_X = 1
"""Columns of `intervals`: begin in wall_s, the x, three columns per value, and sums over time for each role."""
INTERVAL_VALUES = INTERVAL_X + len(X_NAMES)
INTERVAL_PAST = INTERVAL_VALUES + 3 * len(INTERVAL_NAMES)
INTERVAL_ROLES = INTERVAL_PAST + 1
USAGE_COLUMNS = len(_OF_USAGE)
_INTERVAL: tuple[Reduction, ...] = (
    "first",
    *_LAST * len(X_NAMES),
    *_THREE * len(INTERVAL_NAMES),
    "sum",
    *_OF_USAGE * len(ROLES),
)
_EVALUATION: tuple[Reduction, ...] = (
    *_LAST * len(X_NAMES),
    *_THREE * len(EVALUATION_NAMES),
)
_LOGGED: tuple[Reduction, ...] = (*_LAST * len(X_NAMES), *_THREE)
_THRICE = [*range(len(X_NAMES)), *(len(X_NAMES) + at for at in range(len(EVALUATION_NAMES)) for _ in range(3))]
"""Source of each column of `evaluations`: the x, and three columns per value."""


def sampled(path: Path, kind: type[_RecordT], places: int) -> list[_RecordT]:
    """Return records of one kind in order, at most `places`: from evenly spaced offsets, and the newest.
    Raises OSError."""
    found: dict[int, _RecordT] = {}
    with open_regular(path, follow_link=False) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        for place in np.linspace(0, size, places - 1, endpoint=False, dtype=np.int64).tolist():
            for window in _WINDOWS_BYTES:
                if _first(os.pread(descriptor, window, place), place, kind, found):
                    break
        _newest(descriptor, size, kind, found)
    return [found[place] for place in sorted(found)]


def newest_interval(path: Path) -> Interval | None:
    """Return the newest interval near the end of the file; None without an interval or a readable file."""
    found: dict[int, Interval] = {}
    try:
        with open_regular(path, follow_link=False) as file:
            _newest(file.fileno(), os.fstat(file.fileno()).st_size, Interval, found)
    except OSError:
        return None
    return next(iter(found.values()), None)


def _first(data: bytes, place: int, kind: type[_RecordT], found: dict[int, _RecordT]) -> bool:
    """Note the first record of the kind in `data`, which begins at `place` in the file; True for a whole record."""
    mark, at = marker(kind), -1
    while (at := data.find(mark, at + 1)) >= 0:
        if _note(data, at, place, kind, found):
            return True
    return False


def _newest(descriptor: int, size: int, kind: type[_RecordT], found: dict[int, _RecordT]) -> None:
    mark = marker(kind)
    for window in _END_BYTES:
        place = max(size - window, 0)
        data = os.pread(descriptor, window, place)
        at = len(data)
        while (at := data.rfind(mark, 0, at)) >= 0:
            if _note(data, at, place, kind, found):
                return


def _note(data: bytes, at: int, place: int, kind: type[_RecordT], found: dict[int, _RecordT]) -> bool:
    """Note the record around the mark at `at`. A text may hold the same bytes, so the record is decoded."""
    for header, is_map in ((1, data[at - 1] >> 4 == 0x8), (3, at >= 3 and data[at - 3] == 0xDE)):
        if at >= header and is_map:
            begin = at - header
            record = decode_first(data[begin : begin + LONGEST_BYTES])
            if isinstance(record, kind):
                found[place + begin] = record
                return True
    return False


class Spans:
    """Receives events in order, and collects the spans without workers of a role, and with a held-up run."""

    def __init__(self) -> None:
        self._present: dict[str, set[str]] = {}
        self._since_s: dict[str, float] = {}
        """Begin of the open span, by role or HELD_UP."""
        self._over: dict[str, deque[tuple[float, float]]] = {}
        self._ended_s: float | None = None

    @property
    def roles(self) -> list[str]:
        """Roles with at least one worker so far."""
        return list(self._present)

    def take(self, event: Event) -> None:
        """Process one event."""
        role, worker = event.role, event.worker
        if event.event == "run_ends":
            self._ended_s = event.wall_s
        elif event.event == HELD_UP:
            self._since_s.setdefault(HELD_UP, event.wall_s)
        elif event.event == "goes_on":
            self._close(HELD_UP, event.wall_s)
        elif role is not None and worker is not None:
            self._worker(event, role, worker)

    def lasting(self, kind: str, until_s: float) -> list[tuple[float, float]]:
        """Return begin and end, in seconds since the run began, of each span of a role without workers, or of HELD_UP.
        An open span ends at `until_s`, or with the run."""
        found = list(self._over.get(kind, ()))
        end_s = until_s if self._ended_s is None else min(self._ended_s, until_s)
        since_s = self._since_s.get(kind)
        if since_s is not None and since_s < end_s:
            found.append((since_s, end_s))
        return found

    def _worker(self, event: Event, role: str, worker: str) -> None:
        if event.event in _COMES:
            if role not in self._present:  # the first worker of the role
                self._present[role] = set()
                self._since_s[role] = 0.0
            if self._ended_s is not None and event.event == "worker_joined":
                self._ended_s = None  # resumed
            self._present[role].add(worker)
            self._close(role, event.wall_s)
        elif event.event in _GOES and role in self._present:
            self._present[role].discard(worker)
            if not self._present[role]:
                self._since_s.setdefault(role, event.wall_s)

    def _close(self, kind: str, end_s: float) -> None:
        begin_s = self._since_s.pop(kind, None)
        if begin_s is not None and end_s > begin_s:
            self._over.setdefault(kind, deque(maxlen=MOST_SPANS)).append((begin_s, end_s))


def covered(spans: list[tuple[float, float]], begin_s: float, end_s: float) -> float:
    """Return the share of the time from `begin_s` to `end_s` covered by the spans, which are disjoint."""
    if end_s <= begin_s:
        return 0.0
    inside = sum(max(min(end_s, end) - max(begin_s, begin), 0.0) for begin, end in spans)
    return min(inside / (end_s - begin_s), 1.0)


class SeriesReader(GrowingReader):
    """Reads `log/series.msgpack` of a run."""

    def _forget(self) -> None:
        super()._forget()
        self.intervals = Pyramid(_INTERVAL)
        self.evaluations = Pyramid(_EVALUATION)
        self.logged: dict[str, Pyramid] = {}
        """Numbers logged by callbacks, by name: the x, and three columns per value."""
        self.events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self.events_left_out = 0
        self.spans = Spans()
        self.last: Interval | None = None

    @property
    def kept_bytes(self) -> int:
        logged = sum(one.size_bytes for one in self.logged.values())
        return self.intervals.size_bytes + self.evaluations.size_bytes + logged + 400 * len(self.events) + 4_096

    def _read_block(self, descriptor: int, offset: int) -> tuple[int, bool]:
        records, length, done = records_at(descriptor, offset)
        self._take(records)
        return length, done

    def sample_evaluations(self, rows: int) -> FloatArray:
        """Return float64 [n <= rows, columns of `evaluations`] at evenly spaced offsets, and the newest. Raises
        OSError."""
        return _evaluation_rows(sampled(self._path, Evaluation, rows))

    def sample_intervals(self, rows: int) -> FloatArray:
        """Return the same for `intervals`: a row is one interval, with gaps between rows. Raises OSError."""
        return _interval_rows(sampled(self._path, Interval, rows))

    def sample_logged(self, name: str, rows: int) -> FloatArray:
        """The same of `logged`. Raises OSError."""
        return _logged_rows(sampled(self._path, Logged, rows), name)

    def _take(self, records: Sequence[Begin | Moment]) -> None:
        intervals = [record for record in records if type(record) is Interval]
        if intervals:
            self.last = intervals[-1]
            self.events_left_out += sum(record.events_left_out for record in intervals)
            self.intervals.extend(_interval_rows(intervals))
        if evaluations := [record for record in records if type(record) is Evaluation]:
            self.evaluations.extend(_evaluation_rows(evaluations))
        if logged := [record for record in records if type(record) is Logged]:
            for name in dict.fromkeys(name for record in logged for name in record.numbers):
                if name in self.logged or len(self.logged) < MOST_LOGGED:
                    self.logged.setdefault(name, Pyramid(_LOGGED)).extend(_logged_rows(logged, name))
        for record in records:
            if type(record) is Event:
                if len(self.events) == MOST_EVENTS:
                    self.events_left_out += 1
                self.events.append(record)
                self.spans.take(record)


def records_at(descriptor: int, offset: int) -> tuple[list[Begin | Moment], int, bool]:
    """Read a block of the file from `offset` on. Returns the records, their bytes, and True at the readable end. Raises
    OSError."""
    data = os.pread(descriptor, _BLOCK_BYTES, offset)
    records, length = decode_records(data)
    if not length and len(data) == _BLOCK_BYTES:  # a very long or damaged record
        data = os.pread(descriptor, LONGEST_BYTES, offset)
        records, length = decode_records(data)
    return records, length, not length or len(data) < _BLOCK_BYTES


def _interval_rows(records: Sequence[Interval]) -> FloatArray:
    return np.array([_interval_row(record) for record in records], np.float64).reshape(-1, len(_INTERVAL))


def _evaluation_rows(records: Sequence[Evaluation]) -> FloatArray:
    rows = [
        (one.wall_s, one.env_step, one.train_iter, _number(one.return_mean), _number(one.return_std)) for one in records
    ]
    return np.array(rows, np.float64).reshape(-1, len(X_NAMES) + len(EVALUATION_NAMES))[:, _THRICE]


def _logged_rows(records: Sequence[Logged], name: str) -> FloatArray:
    rows = [
        (one.wall_s, one.env_step, one.train_iter, *_three([one.numbers[name]]))
        for one in records
        if name in one.numbers
    ]
    return np.array(rows, np.float64).reshape(-1, len(_LOGGED))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _three(values: list[float]) -> list[float]:
    return [value for one in values for value in (one, one, one)]


def _interval_row(record: Interval) -> list[float]:
    values = [_number(getattr(record, name)) for name in INTERVAL_NAMES]
    roles = {usage.role: usage for usage in record.roles}
    sums = [number for role in ROLES for number in _usage_sums(roles.get(role), record.past_s)]
    begin_s = max(record.wall_s - record.past_s, 0.0)
    return [begin_s, record.wall_s, record.env_step, record.train_iter, *_three(values), record.past_s, *sums]


def _usage_sums(usage: Usage | None, past_s: float) -> list[float]:
    """Return processes, cores and memory times seconds, then the seconds of all processes by kind of time."""
    if usage is None:
        return [0.0] * USAGE_COLUMNS
    whole = [float(getattr(usage, name)) * past_s for name in USAGE_NAMES]
    return whole + [float(getattr(usage, kind)) * past_s * usage.processes for kind in KINDS]
