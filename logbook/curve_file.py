"""The event file of a folder: grows, knows the newest step of its curves, and can remove points of a resumed run.

Every 16 KiB an event that TensorBoard skips marks the newest step of each group of curves (`learner_iter`,
`buffer_sec`). Opening a file of any length reads from its end back to the last mark. Removing points reads back to an
earlier mark. Removed points are overwritten in place by empty events; points of other curves stay in place. This module
depends on the records around scalars, not on their encoding.

After a kill of the writer everything before a mark is whole: events, including marks, are blanked from the end towards
the beginning. The next opening checks the part after the last mark.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from remuda.logbook.event_file import (
    Frame,
    blank_frame,
    frame_around,
    note_event,
    read_frames,
    restart_event,
    version_event,
)
from remuda.storage.atomic import replacing
from remuda.storage.record_file import AppendedFile

MARK_INTERVAL_BYTES = 16 << 10
"""Between two marks; about this much is read when a file is opened. A mark takes some 200 bytes."""

_BLOCK_BYTES = 64 << 10
_LONGEST_MARK_BYTES = 4 << 10
_MARK = "remuda: curves until here "
_EVENT_FILE = re.compile(r"events\.out\.tfevents\.(\d+)\..*")

Newest = Mapping[str, int]
"""Highest step of each group of curves."""


@dataclass(frozen=True)
class _Mark:
    end: int
    newest: Newest


_BEGINNING = _Mark(0, {})


class CurveFile:
    """The one event file of a folder; the process that opened the file last is its writer.

    Opening gives the file a later name. A former writer, for instance a stopped process, then misses the file and stops
    writing. A running TensorBoard reads a new file, whose first event discards the former points.
    """

    def __init__(self, folder: Path, *, now_s: Callable[[], float]) -> None:
        """Raises OSError."""
        self._folder = folder
        self._now_s = now_s
        self.newest: Newest = {}
        self._unmarked_bytes = 0
        files = sorted(path for path in folder.iterdir() if _EVENT_FILE.fullmatch(path.name) and path.is_file())
        if not files:
            self._file = AppendedFile(self._begin())
            return
        for path in files[:-1]:  # left by an older version that was killed while rewriting
            path.unlink(missing_ok=True)
        self._file = AppendedFile(files[-1])
        try:
            self._file.rename(self._later_name(_stamp(files[-1])))
            with _opened(self.path) as descriptor:
                self._repair(descriptor)
        except BaseException:
            self._file.close()
            raise

    @property
    def path(self) -> Path:
        """Path of the file; the name changes when points are removed."""
        return self._file.path

    def append(self, records: bytes, steps: Newest) -> None:
        """Append records up to these steps of their groups of curves, or nothing: then OSError is raised."""
        if not self._file.in_place:
            raise FileNotFoundError(f"{self.path} is gone, or another process has taken it over")
        newest = _higher(self.newest, steps)
        unmarked_bytes = self._unmarked_bytes + len(records)
        if unmarked_bytes >= MARK_INTERVAL_BYTES:
            records, unmarked_bytes = records + self._mark(newest), 0
        self._file.append(records)
        self.newest, self._unmarked_bytes = newest, unmarked_bytes

    def cut(self, limit: Callable[[str], float]) -> None:
        """Remove the points of each group after the group's limit. May be called again after an OSError."""
        if _within(self.newest, limit):
            return
        with _opened(self.path) as descriptor:
            self._forget(descriptor, limit)
        self._unmarked_bytes = MARK_INTERVAL_BYTES  # later marks were removed
        with contextlib.suppress(OSError):  # the disk may be full; the next record adds a mark
            self.append(b"", {})
        self._file.rename(self._later_name(_stamp(self.path)))

    def close(self) -> None:
        """Close the file. May be called again."""
        self._file.close()

    def _begin(self) -> Path:
        path = self._later_name(-1)
        with replacing(path, durable=False) as temporary:
            temporary.write_bytes(self._head())
        return path

    def _head(self) -> bytes:
        return version_event(self._now_s()) + restart_event(self._now_s()) + self._mark({})

    def _later_name(self, stamp: int) -> Path:
        """Return a name that TensorBoard reads next: it reads the files of a folder in order of name, and only
        forwards."""
        now = max(int(self._now_s()), stamp + 1)
        return self._folder / f"events.out.tfevents.{now:010d}.{socket.gethostname()}"

    def _mark(self, newest: Newest) -> bytes:
        return note_event(self._now_s(), _MARK + json.dumps(newest))

    def _repair(self, descriptor: int) -> None:
        """Check the part after the last mark: remove a torn end, and finish an interrupted blanking."""
        mark = _last_mark(descriptor, lambda newest: True)
        data = _read_from(descriptor, mark.end)
        end, newest = 0, mark.newest
        for frame in read_frames(data, checked=True):
            end, newest = frame.end, _higher(newest, _steps(frame))
            if not frame.intact:
                _blank(descriptor, mark.end, frame)
        os.ftruncate(descriptor, mark.end + end)
        self.newest, self._unmarked_bytes = newest, end
        if mark.end + end == 0:
            os.pwrite(descriptor, self._head(), 0)

    def _forget(self, descriptor: int, limit: Callable[[str], float]) -> None:
        mark = _last_mark(descriptor, lambda newest: _within(newest, limit))
        kept_end, newest, beyond = 0, mark.newest, list[Frame]()
        for frame in read_frames(_read_from(descriptor, mark.end), checked=False):
            if frame.note.startswith(_MARK) or not _within(_steps(frame), limit):
                beyond.append(frame)
            else:
                kept_end, newest = frame.end, _higher(newest, _steps(frame))
        os.ftruncate(descriptor, mark.end + kept_end)
        for frame in reversed(beyond):
            if frame.end <= kept_end:
                _blank(descriptor, mark.end, frame)
        self.newest = newest


@contextlib.contextmanager
def _opened(path: Path) -> Generator[int, None, None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _stamp(path: Path) -> int:
    found = _EVENT_FILE.fullmatch(path.name)
    return int(found.group(1)) if found else 0


def _last_mark(descriptor: int, wanted: Callable[[Newest], bool]) -> _Mark:
    """Read back, block by block, to the last mark that `wanted` accepts."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        begin = max(end - _BLOCK_BYTES, 0)
        data = os.pread(descriptor, end - begin, begin)
        for mark in _marks(data):
            if wanted(mark.newest):
                return _Mark(begin + mark.end, mark.newest)
        end = begin and begin + _LONGEST_MARK_BYTES  # a mark may cross the border of blocks
    return _BEGINNING


def _marks(data: bytes) -> Iterable[_Mark]:
    """Yield the marks in `data`, the last mark first."""
    position = len(data)
    while (position := data.rfind(_MARK.encode(), 0, position)) >= 0:
        frame = frame_around(data, position)
        if frame is not None and frame.note.startswith(_MARK):
            with contextlib.suppress(msgspec.DecodeError):
                yield _Mark(frame.end, msgspec.json.decode(frame.note.removeprefix(_MARK), type=dict[str, int]))


def _read_from(descriptor: int, begin: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size - begin, begin)


def _blank(descriptor: int, begin: int, frame: Frame) -> None:
    os.pwrite(descriptor, blank_frame(frame.end - frame.begin), begin + frame.begin)


def _steps(frame: Frame) -> Newest:
    """Return group and step of a record, whose scalars all belong to a single group."""
    return {frame.tag.partition("/")[0]: frame.step} if frame.tag else {}


def _higher(newest: Newest, steps: Newest) -> Newest:
    return {**newest, **{group: max(step, newest.get(group, -1)) for group, step in steps.items()}}


def _within(newest: Newest, limit: Callable[[str], float]) -> bool:
    return all(step <= limit(group) for group, step in newest.items())
