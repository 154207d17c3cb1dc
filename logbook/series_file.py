"""The writer of a run's time series: appends records, and continues the file of a resumed run."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from remuda.logbook.series import FORMAT, Begin, Interval, Moment, read_whole
from remuda.storage.appended import AppendedFile
from remuda.storage.atomic import replacing
from remuda.storage.record_file import packed
from remuda.wire.messages import Counters


class SeriesFile:
    """Opens its file with the first record, so that a run can begin even if the disk is full.

    An existing file is continued: a torn record of a killed writer is removed, and so are the records after the point
    from which a resumed run continues, so that each moment of the run is there once.
    """

    def __init__(self, path: Path, *, resumed: Counters | None = None, now_s: Callable[[], float] = time.time) -> None:
        """Existing records after `resumed` are removed; None keeps all."""
        self.path = path
        self.now_s = now_s
        """Seconds since 1970."""
        self._last_wall_s = float("inf") if resumed is None else resumed.wall_s
        self._file: AppendedFile | None = None
        self._closed = False
        self._newest: Interval | None = None

    @property
    def newest(self) -> Interval | None:
        """The last interval in the file; None where there is none. Raises OSError."""
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
    """Leave what is whole and not beyond this time; return the last interval. Raises OSError."""
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
    """Write the file again with these pieces of it, from one byte up to another."""
    with replacing(path, durable=False) as temporary, open(path, "rb") as whole, open(temporary, "wb") as file:
        for begin, end in pieces:
            whole.seek(begin)
            file.write(whole.read(end - begin))
