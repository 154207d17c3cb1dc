"""The event stream: messages, and changes since the last messages."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct, structs

from remuda.logbook import tail
from remuda.page.commands import RequestedEvaluation
from remuda.page.coordinator_link import LastStatus, Presence
from remuda.page.herd import (
    HostView,
    QueueEntry,
    WorkerView,
    hosts,
    queue,
    worker_view,
)
from remuda.page.log_files import known_log
from remuda.page.run_ids import whole_run
from remuda.page.run_rows import run_ids
from remuda.page.stored_runs import RunRow
from remuda.page.views import Session, SweepView, Views
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import CoordinatorStatus, LogPosition, Role

_Item = TypeVar("_Item")
_RSS_BITS = 24
"""Memory counts in steps of 16 MiB."""
_BEAT_S = 5.0
"""Step in which the age of the last beat counts; above the age of any working worker."""
_PIECES = 16
"""Most pieces of a log per round; the rest follows."""
_ID = re.compile(r"2\.(\d{1,20})\.(\d{1,20})")


class Changes(Generic[_Item]):
    """Remembers summaries of sent items by key; a changed summary sends the item again."""

    def __init__(self, key: Callable[[_Item], str], summary: Callable[[_Item], Hashable]) -> None:
        self._key = key
        self._summary = summary
        self._sent: Mapping[str, Hashable] = {}
        self.began = False
        """True after the first call of `take`."""

    def take(self, items: Iterable[_Item]) -> tuple[list[_Item], list[str]]:
        """Return new and changed items, and the keys of removed items; then all items count as sent."""
        sent: dict[str, Hashable] = {}
        changed: list[_Item] = []
        for item in items:
            key, summary = self._key(item), self._summary(item)
            sent[key] = summary
            if key not in self._sent or self._sent[key] != summary:
                changed.append(item)
        gone = [key for key in self._sent if key not in sent]
        self._sent, self.began = sent, True
        return changed, gone


def worker_summary(worker: WorkerView) -> Hashable:
    """Summarize a worker by rounded numbers, since exact numbers change every second."""
    return (
        worker.incarnation,
        worker.state,
        worker.experiment,
        worker.activity,
        int(worker.beat_age_s // _BEAT_S),
        round(worker.cpu_cores, 1),
        worker.rss_bytes >> _RSS_BITS,
        None if worker.work_share is None else round(worker.work_share, 1),
    )


def row_key(row: RunRow) -> str:
    """Return the key of a run."""
    return row.run if row.run is not None else row.experiment or row.name


row_summary = attrgetter(
    *("state", "reason", "says", "priority", "env_step", "train_iter", "episode", "last_return", "best_return"),
    *("policy_lag", "samples_per_insert", "group", "live", "note", "tags"),
)
"""Summarizes a run without times."""


class Message(Struct, frozen=True):
    """A message of the stream."""

    id: str
    event: str
    data: object

    def encoded(self) -> bytes:
        """Encode as `text/event-stream`. JSON contains no newline."""
        return b"id: %s\nevent: %s\ndata: %s\n\n" % (
            self.id.encode(),
            self.event.encode(),
            msgspec.json.encode(self.data),
        )


class HerdNews(Struct, frozen=True):
    """The herd, or its changes."""

    all: bool
    coordinator: CoordinatorStatus
    hosts: list[HostView]
    workers: list[WorkerView]
    gone: list[str]


class RunsNews(Struct, frozen=True):
    """All runs, or the changed runs."""

    all: bool
    runs: list[RunRow]
    gone: list[str]
    complete: bool
    """True if no further runs exist."""
    sweeps: list[SweepView]


class LogLines(Struct, frozen=True):
    """New lines of a log."""

    file: str
    begin: int
    end: int
    text: str
    reset: bool
    """True after a replacement of the file: the former lines are void."""


class OfRun(Struct, frozen=True):
    """Something of this run has changed: ask again."""

    run: str


class PresenceNews(Struct, frozen=True):
    """The coordinator came or went."""

    coordinator: Presence
    since_s: float | None


@dataclass(frozen=True)
class Position:
    """Position in a log up to which lines were sent; the content of message ids."""

    log_inode: int = 0
    log_offset: int = 0

    def __str__(self) -> str:
        return f"2.{self.log_inode}.{self.log_offset}"

    @staticmethod
    def of(id: str | None) -> Position | None:
        """Return the position of an id; None for an id of another version."""
        found = _ID.fullmatch(id or "")
        return None if found is None else Position(*map(int, found.groups()))


@dataclass(frozen=True)
class StreamOptions:
    """Contents of a stream."""

    run: str | None = None
    log: str | None = None
    after: int | None = None
    """First byte of the sent lines; None for the current end of the log."""
    runs: bool = False
    herd: bool = False


class Follower:
    """A stream: `news` returns the changes since the last call. Not thread-safe."""

    def __init__(
        self, views: Views, options: StreamOptions, session: Callable[[], Session], position: Position | None = None
    ) -> None:
        """Begin at `position` of the last received message. Raises UnknownRunError, UnknownLogError, OSError."""
        self._views = views
        self._stream_options = options
        self._session = session
        self._folder = None if options.run is None else views.ids.folder(views.ids.each_policy(options.run)[0])
        """Of the policy, where a run has several."""
        self._log = None if options.run is None else views.ids.folder(whole_run(options.run)).log
        if self._log is not None and options.log is not None:
            known_log(self._log, options.log)
        self._position: Position = self._end() if position is None else position
        self._presence: Presence | None = None
        self._number = -1
        self._queue: tuple[list[QueueEntry], Mapping[Role, int]] | None = None
        self._workers = Changes[WorkerView](lambda worker: worker.uuid, worker_summary)
        self._runs = Changes[RunRow](row_key, row_summary)
        self._row = Changes[RunRow](row_key, row_summary)
        self._evaluations = Changes[RequestedEvaluation](lambda each: each.id, lambda each: each.state)
        if position is None:
            self._evaluations.take(views.evaluations.all)
        self._began = False
        self._whole = dict(views.library.whole)
        self._stamps: dict[str, tuple[int, int, int]] = {}

    def news(self) -> Iterator[Message]:
        """Yield the changes. The first call yields everything, since earlier answers may be out of date."""
        seen = self._views.link.look()
        yield from self._of_coordinator(seen)
        if self._stream_options.runs:
            yield from self._of_runs()
        if self._folder is not None and self._stream_options.run is not None:
            yield from self._of_run(self._stream_options.run, self._folder)
        for evaluation in self._evaluations.take(self._views.evaluations.all)[0]:
            yield self._message("evaluation", evaluation)
        for run, times in dict(self._views.library.whole).items():
            if times != self._whole.get(run):
                self._whole[run] = times
                yield self._message("curves", OfRun(run))
        self._began = True

    def _message(self, event: str, data: object) -> Message:
        return Message(str(self._position), event, data)

    def _of_coordinator(self, seen: LastStatus) -> Iterator[Message]:
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
        still = [structs.replace(each, wall_s=0.0) for each in now.experiments], now.free  # seconds always grow
        if still != self._queue:
            self._queue = still
            yield self._message("queue", now)
        if self._stream_options.herd:
            workers = [worker_view(worker, runs) for worker in status.workers]
            first = not self._workers.began
            changed, gone = self._workers.take(workers)
            if first or changed or gone:
                news = HerdNews(first, status.coordinator, hosts(workers), changed, gone)
                yield self._message("herd", news)

    def _of_runs(self) -> Iterator[Message]:
        first = not self._runs.began
        found = self._views.runs()
        changed, gone = self._runs.take(found.runs)
        if first or changed or gone:
            yield self._message("runs", RunsNews(first, changed, gone, found.complete, found.sweeps))

    def _of_run(self, run: str, folder: RunFolder) -> Iterator[Message]:
        changed, _ = self._row.take([self._views.row(run)])
        for row in changed:
            yield self._message("run", {"run": row})
        for event, path in (("points", folder.series), ("checkpoints", folder.index)):
            stamp = _stamp(path)
            if stamp != self._stamps.get(event):
                self._stamps[event] = stamp
                yield self._message(event, OfRun(run))
        if self._stream_options.log is not None:
            for lines in self._lines(self._stream_options.log):
                yield self._message("log", lines)

    def _lines(self, file: str) -> Iterator[LogLines]:
        """Yield new whole lines of the log, and advance the position."""
        assert self._log is not None, "a log is that of a run"
        for _ in range(_PIECES):
            before = self._position
            try:
                piece = tail.read(self._log, LogPosition(file, before.log_inode, before.log_offset))
            except OSError:
                return  # not written yet
            inode, end = piece.position.inode, piece.position.offset
            reset = bool(before.log_inode) and (inode != before.log_inode or end < before.log_offset)
            if not piece.text and not reset:
                return
            begin = 0 if reset or not before.log_inode else before.log_offset
            self._position = Position(inode, end)
            yield LogLines(file, begin, end, piece.text, reset)

    def _end(self) -> Position:
        """Return the end of the log, or the requested `after`."""
        if self._log is None or self._stream_options.log is None:
            return Position()
        try:
            status = os.stat(known_log(self._log, self._stream_options.log))
        except OSError:
            return Position()
        after = self._stream_options.after
        return Position(status.st_ino, status.st_size if after is None else min(after, status.st_size))


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return a stamp that changes with the file."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_mtime_ns, status.st_size
