"""The event stream: what each round has to tell, and ids from which any later server goes on."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from remuda.logbook import tail
from remuda.logbook.series import Evaluation, Event, Interval, read_whole
from remuda.page.changes import Changes, row_key, row_summary, worker_summary
from remuda.page.coordinator_link import Presence, Seen
from remuda.page.evaluations import AskedEvaluation
from remuda.page.herd import WorkerView, coordinator_view, hosts, worker_view
from remuda.page.library import Budget
from remuda.page.log_files import known_log
from remuda.page.run_rows import RunRow, run_ids
from remuda.page.stream_messages import (
    HerdNews,
    LogLines,
    Message,
    OfRun,
    Points,
    PresenceNews,
    RunsNews,
    evaluation_point,
    interval_point,
    without_time,
)
from remuda.page.timeline import event_view
from remuda.page.views import Session, Views
from remuda.page.waiting import Queue, queue
from remuda.storage.run_folder import RunFolder

MOST_POINTS = 1_000
"""Records of the time series in one message; the rest follows."""
_PIECES = 16
"""Pieces of a log in one round; the rest follows."""
_SERIES_S = 0.2
_ID = re.compile(r"1\.(\d{1,20})\.(\d{1,20})\.(\d{1,20})\.(\d{1,20})")


@dataclass(frozen=True)
class Position:
    """How far time series and log were told: this is what the id of a message holds."""

    series_inode: int = 0
    series_offset: int = 0
    log_inode: int = 0
    log_offset: int = 0

    def __str__(self) -> str:
        return f"1.{self.series_inode}.{self.series_offset}.{self.log_inode}.{self.log_offset}"

    @staticmethod
    def of(id: str | None) -> Position | None:
        """The position of an id; None if it is no id of this version."""
        found = _ID.fullmatch(id or "")
        return None if found is None else Position(*map(int, found.groups()))


@dataclass(frozen=True)
class Wishes:
    """What one stream is about."""

    run: str | None = None
    log: str | None = None
    after: int | None = None
    """The byte of the log from which on its lines are told; None: its present end."""
    runs: bool = False
    herd: bool = False


class Follower:
    """One stream: `news` says what there is to tell since its last call. Not for several threads at once."""

    def __init__(
        self, views: Views, wishes: Wishes, session: Callable[[], Session], position: Position | None = None
    ) -> None:
        """`position`: that of the last message that the reader has got. Raises UnknownRunError, UnknownLogError,
        OSError."""
        self._views = views
        self._wishes = wishes
        self._session = session
        self._folder = None if wishes.run is None else views.ids.folder(wishes.run)
        if self._folder is not None and wishes.log is not None:
            known_log(self._folder.log, wishes.log)
        self._position: Position = self._end() if position is None else position
        self._presence: Presence | None = None
        self._number = -1
        self._queue: Queue | None = None
        self._workers = Changes[WorkerView](lambda worker: worker.uuid, worker_summary)
        self._runs = Changes[RunRow](row_key, row_summary)
        self._row = Changes[RunRow](row_key, row_summary)
        self._evaluations = Changes[AskedEvaluation](lambda each: each.id, lambda each: each.state)
        if position is None:
            self._evaluations.take(views.evaluations.all)
        self._began = False
        self._whole = dict(views.library.whole)
        self._resumed = position is not None
        """What happened since the last message was told by nobody."""
        self._index_stamp = (-1, -1) if self._resumed else self._stamp()

    def news(self) -> Iterator[Message]:
        """What has changed. The first call also says what there is."""
        seen = self._views.link.look()
        yield from self._of_coordinator(seen)
        if self._wishes.runs:
            yield from self._of_runs()
        if self._folder is not None and self._wishes.run is not None:
            yield from self._of_run(self._wishes.run, self._folder)
        for evaluation in self._evaluations.take(self._views.evaluations.all)[0]:
            yield self._message("evaluation", evaluation)
        for run, times in dict(self._views.library.whole).items():
            if times != self._whole.get(run):
                self._whole[run] = times
                yield self._message("curves", OfRun(run))
        self._began = True

    def _message(self, event: str, data: object) -> Message:
        return Message(str(self._position), event, data)

    def _of_coordinator(self, seen: Seen) -> Iterator[Message]:
        if not self._began:
            yield self._message("hello", {"session": self._session()})
        elif seen.presence != self._presence:
            yield self._message("coordinator", PresenceNews(seen.presence, seen.silent_since_s))
        self._presence = seen.presence
        if seen.status is None or seen.presence != "up" or seen.number == self._number:
            return
        self._number, status = seen.number, seen.status
        runs = run_ids(status, self._views.ids)
        now = queue(status, runs)
        still = without_time(now)
        if still != self._queue:
            self._queue = still
            yield self._message("queue", now)
        if self._wishes.herd:
            workers = [worker_view(worker, runs) for worker in status.workers]
            first = not self._workers.began
            changed, gone = self._workers.take(workers)
            if first or changed or gone:
                news = HerdNews(first, coordinator_view(status.coordinator), hosts(workers), changed, gone)
                yield self._message("herd", news)

    def _of_runs(self) -> Iterator[Message]:
        first = not self._runs.began
        changed, gone = self._runs.take(self._views.runs().runs)
        if first:
            if self._resumed:
                yield self._message("runs", RunsNews(True, changed, []))
        elif changed or gone:
            yield self._message("runs", RunsNews(False, changed, gone))

    def _of_run(self, run: str, folder: RunFolder) -> Iterator[Message]:
        changed, _ = self._row.take([self._views.row(run)])
        for row in changed:
            yield self._message("run", {"run": row})
        points = self._points(run, folder)
        if points is not None:
            yield self._message("points", points)
        stamp = self._stamp()
        if stamp != self._index_stamp:
            self._index_stamp = stamp
            yield self._message("checkpoints", OfRun(run))
        if self._wishes.log is not None:
            for lines in self._lines(folder, self._wishes.log):
                yield self._message("log", lines)

    def _points(self, run: str, folder: RunFolder) -> Points | None:
        """New records; the position moves on behind them."""
        try:
            status = os.stat(folder.series)
        except OSError:
            return None
        position = self._position
        inode, offset = position.series_inode, position.series_offset
        if inode and (status.st_ino != inode or status.st_size < offset):
            self._position = replace(self._position, series_inode=status.st_ino, series_offset=self._end_of_series(run))
            return Points(run, True, [], [], [])
        points, end = Points(run, False, [], [], []), offset
        for number, whole in enumerate(read_whole(folder.series, begin=offset), start=1):
            end = whole.end
            match whole.record:
                case Interval():
                    points.intervals.append(interval_point(whole.record))
                case Evaluation():
                    points.evaluations.append(evaluation_point(whole.record))
                case Event():
                    points.events.append(event_view(whole.record))
                case _:
                    pass
            if number == MOST_POINTS:
                break
        self._position = replace(position, series_inode=status.st_ino, series_offset=end)
        return points if points.intervals or points.evaluations or points.events else None

    def _lines(self, folder: RunFolder, file: str) -> Iterator[LogLines]:
        """New whole lines of the log; the position moves on behind them."""
        for _ in range(_PIECES):
            before = self._position
            try:
                piece = tail.read(folder.log, tail.Place(file, before.log_inode, before.log_offset))
            except OSError:
                return  # it is not there yet
            inode, end = piece.place.inode, piece.place.offset
            reset = bool(before.log_inode) and (inode != before.log_inode or end < before.log_offset)
            if not piece.text and not reset:
                return
            begin = 0 if reset or not before.log_inode else before.log_offset
            self._position = replace(before, log_inode=inode, log_offset=end)
            yield LogLines(file, inode, begin, end, piece.text, reset)

    def _end(self) -> Position:
        """Behind everything that is there; of the log from `after` on, if that was asked for."""
        position, run, log = Position(), self._wishes.run, self._wishes.log
        if self._folder is None or run is None:
            return position
        series = _inode(self._folder.series)
        if series:
            position = replace(position, series_inode=series, series_offset=self._end_of_series(run))
        if log is not None:
            try:
                status = os.stat(known_log(self._folder.log, log))
            except OSError:
                return position
            after = self._wishes.after
            offset = status.st_size if after is None else min(after, status.st_size)
            position = replace(position, log_inode=status.st_ino, log_offset=offset)
        return position

    def _end_of_series(self, run: str) -> int:
        """Where the last whole record ends."""
        with self._views.library.series(run, Budget(_SERIES_S)) as reader:
            return reader.offset if reader.read_share >= 1.0 else reader.size_bytes

    def _stamp(self) -> tuple[int, int]:
        if self._folder is None:
            return 0, 0
        try:
            status = os.stat(self._folder.index)
        except OSError:
            return 0, 0
        return status.st_mtime_ns, status.st_size


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0
