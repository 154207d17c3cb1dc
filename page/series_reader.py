"""What a page keeps of a run's time series: bounded however long it is, and read on where reading stopped."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np

from remuda.logbook.series import Begin, Evaluation, Event, Interval, read_whole
from remuda.logbook.usage import Usage
from remuda.page.growing import Mark, look, moved
from remuda.page.pyramid import FloatArray, Pyramid, Reduction
from remuda.page.spans import Spans
from remuda.training.vitals import ROLES

X_NAMES = ("wall_s", "env_step", "train_iter")
"""What curves can stand over."""
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
"""What a process spends its time on, as records of the series name it."""
MOST_EVENTS = 500
"""The newest ones are kept."""
_AT_ONCE = 256
"""Records that are added to the buckets together."""

_THREE: tuple[Reduction, ...] = ("last", "min", "max")
_LAST: tuple[Reduction, ...] = ("last",)
_SUM: tuple[Reduction, ...] = ("sum",)
_OF_USAGE = _SUM * (len(USAGE_NAMES) + len(KINDS))
INTERVAL_X = 1
"""Columns of `intervals`: the beginning in wall_s, the x, three of each value, and then per role its sums over time."""
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


class SeriesReader:
    """Reads `log/series.msgpack` of one run. Not for several threads at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget()

    def _forget(self) -> None:
        self._mark = Mark()
        self.size_bytes = 0
        self.intervals = Pyramid(_INTERVAL)
        self.evaluations = Pyramid(_EVALUATION)
        self.events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self.events_left_out = 0
        self.spans = Spans()
        self.last: Interval | None = None
        self._interval_rows: list[list[float]] = []
        self._evaluation_rows: list[list[float]] = []

    @property
    def read_share(self) -> float:
        """The share of the file that was read."""
        return min(self._mark.offset / self.size_bytes, 1.0) if self.size_bytes else 1.0

    @property
    def kept_bytes(self) -> int:
        """Of memory, about."""
        return self.intervals.size_bytes + self.evaluations.size_bytes + 400 * len(self.events) + 4_096

    @property
    def offset(self) -> int:
        """Bytes that were read."""
        return self._mark.offset

    def read(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Read on while `go_on()`, which is asked now and then; whether the end was reached. No file is an empty one.
        Raises OSError."""
        try:
            now = look(self._path, self._mark)
        except FileNotFoundError:
            if self._mark != Mark():
                self._forget()
            return True
        if not now.is_same:
            if self._mark.inode:
                self._forget()
            self._mark = now.mark
        self.size_bytes = now.size
        offset, done = self._mark.offset, True
        for number, whole in enumerate(read_whole(self._path, begin=offset), start=1):
            self._take(whole.record)
            offset = whole.end
            if number % _AT_ONCE == 0:
                self._flush()
                if not go_on():
                    done = False
                    break
        self._flush()
        if offset > self._mark.offset:
            self._mark = moved(self._path, self._mark, offset)
            self.size_bytes = max(self.size_bytes, offset)
        if done:  # a torn end is no part of it
            self.size_bytes = self._mark.offset
        return done

    def _take(self, record: Begin | Interval | Evaluation | Event | None) -> None:
        match record:
            case Interval():
                self.last = record
                self.events_left_out += record.events_left_out
                self._interval_rows.append(_interval_row(record))
            case Evaluation():
                self._evaluation_rows.append(_evaluation_row(record))
            case Event():
                if len(self.events) == MOST_EVENTS:
                    self.events_left_out += 1
                self.events.append(record)
                self.spans.take(record)
            case _:
                pass

    def _flush(self) -> None:
        if self._interval_rows:
            self.intervals.extend(_array(self._interval_rows))
        if self._evaluation_rows:
            self.evaluations.extend(_array(self._evaluation_rows))
        self._interval_rows, self._evaluation_rows = [], []


def _array(rows: list[list[float]]) -> FloatArray:
    return np.array(rows, np.float64)


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
    """Processes, cores and memory times seconds, then the seconds of all processes by what they were spent on."""
    if usage is None:
        return [0.0] * USAGE_COLUMNS
    whole = [float(getattr(usage, name)) * past_s for name in USAGE_NAMES]
    return whole + [float(getattr(usage, kind)) * past_s * usage.processes for kind in KINDS]


def _evaluation_row(record: Evaluation) -> list[float]:
    values = [_number(getattr(record, name)) for name in EVALUATION_NAMES]
    return [record.wall_s, record.env_step, record.train_iter, *_three(values)]
