"""Writes the run's time series: appends records, continues the file of a resumed run, and sums up frequent reports."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from remuda.logbook.episode_reports import CollectReport, EvaluationReport, WorkerReport
from remuda.logbook.reports import BufferThroughputReport, CallbackReport, EventReport, Report, VitalsReport
from remuda.logbook.series import (
    FORMAT,
    Begin,
    Evaluation,
    Event,
    Interval,
    Logged,
    Moment,
    Usage,
    WorkerUsage,
    read_whole,
)
from remuda.storage.atomic import replacing
from remuda.storage.record_file import AppendedFile, packed
from remuda.wire.messages import Counters

EVENTS_PER_INTERVAL = 100
"""Most events and evaluations kept per interval; further records are only counted, to limit the file."""
LOGGED_PER_INTERVAL = 1_000
"""Most records of callbacks kept per interval; TensorBoard has all."""
LONGEST_TEXT = 300
"""Most characters of an event's text, from its first line; the commander's log has the rest."""


class SeriesFile:
    """Opens the file with the first record, so that a run can begin on a full disk.

    An existing file is continued, without a torn record of a killed writer, and without the records after the resumed
    point. So each moment of the run is recorded once.
    """

    def __init__(self, path: Path, *, resumed: Counters | None = None, now_s: Callable[[], float] = time.time) -> None:
        """Prepare the file. Existing records after `resumed` are removed; None keeps all."""
        self.path = path
        self.now_s = now_s
        """Seconds since 1970."""
        self._last_wall_s = float("inf") if resumed is None else resumed.wall_s
        self._file: AppendedFile | None = None
        self._closed = False
        self._newest: Interval | None = None

    @property
    def newest(self) -> Interval | None:
        """Last interval in the file; None for a file without intervals. Raises OSError."""
        self._opened()
        return self._newest

    def append(self, record: Moment) -> None:
        """Append a record, whole or not at all. Raises OSError. ValueError: the file was closed."""
        file = self._opened()
        data = packed(msgspec.to_builtins(record))
        if os.stat(self.path).st_size == 0:
            data = packed(msgspec.to_builtins(Begin(format=FORMAT, time_s=self.now_s()))) + data
        file.append(data)
        if isinstance(record, Interval):
            self._newest = record

    def close(self) -> None:
        """Close the file. May be called again."""
        self._closed = True
        if self._file is not None:
            self._file.close()

    def _opened(self) -> AppendedFile:
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if self._file is None:
            with contextlib.suppress(FileNotFoundError):
                self._newest = _continue(self.path, self._last_wall_s)
            self._file = AppendedFile(self.path)
        return self._file


def _continue(path: Path, last_wall_s: float) -> Interval | None:
    """Keep whole records up to this time; return the last interval. Raises OSError."""
    newest: Interval | None = None
    end, kept = 0, list[tuple[int, int]]()
    for whole in read_whole(path):
        if whole.wall_s > last_wall_s:
            continue
        if isinstance(whole.record, Interval):
            newest = whole.record
        if kept and whole.begin == kept[-1][1]:
            kept[-1] = kept[-1][0], whole.end
        else:
            kept.append((whole.begin, whole.end))
        end = whole.end
    if kept and kept != [(0, end)]:
        _keep(path, kept)
    elif end < path.stat().st_size:
        os.truncate(path, end)
    return newest


def _keep(path: Path, pieces: list[tuple[int, int]]) -> None:
    """Rewrite the file with these pieces only, ranges of bytes."""
    with replacing(path, durable=False) as temporary, open(path, "rb") as whole, open(temporary, "wb") as file:
        for begin, end in pieces:
            whole.seek(begin)
            file.write(whole.read(end - begin))


@dataclass
class _Sums:
    """Sums since the last interval."""

    episodes: int = 0
    returns: float = 0.0
    """Sum of the returns."""
    env_steps: Counter[str] = field(default_factory=Counter[str])
    """By worker."""
    events: int = 0
    logged: int = 0

    def add(self, episodes: int, return_mean: float) -> None:
        if episodes and math.isfinite(return_mean):
            self.episodes += episodes
            self.returns += episodes * return_mean


class SeriesView:
    """Shows reports of several topics in one file."""

    def __init__(self, file: SeriesFile) -> None:
        self.file = file
        self._sums = _Sums()
        self._buffer: BufferThroughputReport | None = None
        """The newest table of the replay index."""

    def show(self, report: Report) -> None:
        """Append a record, or keep the report for the record of the present interval. Raises OSError."""
        match report:
            case CollectReport():
                self._sums.add(len(report.window.episode_returns), report.window.statistics()["reward_mean"])
            case WorkerReport():
                self._sums.add(report.episode_count, report.reward_mean)
                self._sums.env_steps[report.worker] += report.step_count
            case BufferThroughputReport():
                self._buffer = report
            case VitalsReport():
                self._interval(report)
            case EvaluationReport():
                self._once(self._evaluation(report))
            case EventReport():
                self._once(self._event(report))
            case CallbackReport():
                self._logged(report)
            case _:
                pass

    def _once(self, record: Evaluation | Event) -> None:
        self._sums.events += 1
        if self._sums.events <= EVENTS_PER_INTERVAL:
            self.file.append(record)

    def _logged(self, report: CallbackReport) -> None:
        self._sums.logged += 1
        numbers = {name: value for name, value in report.numbers.items() if math.isfinite(value)}
        if numbers and self._sums.logged <= LOGGED_PER_INTERVAL:
            self.file.append(Logged(**self._at(report, report.wall_s), callback=report.callback, numbers=numbers))

    def _at(self, report: Report, wall_s: float) -> dict[str, Any]:
        """Return the time and the counters of a record."""
        now_s = self.file.now_s()
        return {"time_s": now_s, "wall_s": wall_s, "env_step": report.env_step, "train_iter": report.train_iter}

    def _interval(self, report: VitalsReport) -> None:
        sums, before, buffer = self._sums, self.file.newest, self._buffer
        wall_s = report.wall_s - (0.0 if before is None else before.wall_s)
        env_steps = report.env_step - (0 if before is None else before.env_step)
        train_iters = report.train_iter - (0 if before is None else before.train_iter)
        self.file.append(
            Interval(
                **self._at(report, report.wall_s),
                past_s=report.past_s,
                episode=report.episode,
                policy_version=report.policy_version,
                env_steps_per_s=_per_s(env_steps, wall_s),
                train_iters_per_s=_per_s(train_iters, wall_s),
                episodes=sums.episodes,
                return_mean=sums.returns / sums.episodes if sums.episodes else None,
                buffer_rows=None if buffer is None else buffer.current_have,
                policy_lag=None if buffer is None else buffer.policy_lag,
                samples_per_insert=None if buffer is None else _finite(buffer.samples_per_insert),
                ledger=None if buffer is None else buffer.ledger,
                events_left_out=max(sums.events - EVENTS_PER_INTERVAL, 0),
                roles=list(report.roles),
                workers=[self._worker_usage(name, vitals) for name, vitals in report.workers.items()],
            )
        )
        self._sums = _Sums()

    def _worker_usage(self, name: str, vitals: Usage) -> WorkerUsage:
        env_steps = self._sums.env_steps[name] if vitals.role == "collector" else None
        return WorkerUsage(worker=name, env_steps=env_steps, **structs.asdict(vitals))

    def _evaluation(self, report: EvaluationReport) -> Evaluation:
        statistics = report.statistics()
        return Evaluation(
            **self._at(report, report.wall_s),
            checkpoint=report.ckpt_name,
            episodes=len(report.returns),
            return_mean=_finite(statistics["reward_mean"]),
            return_std=_finite(statistics["reward_std"]),
            duration_s=report.duration_s,
            best=report.best,
        )

    def _event(self, report: EventReport) -> Event:
        return Event(
            **self._at(report, report.wall_s),
            event=report.kind,
            role=report.role,
            worker=report.worker,
            text=report.what.partition("\n")[0][:LONGEST_TEXT],
        )


def _per_s(count: int, seconds: float) -> float:
    return max(count, 0) / seconds if seconds > 0 else 0.0


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
