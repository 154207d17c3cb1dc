"""Readers of the viewed runs: in bounded memory, with a thread that reads long files."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar, cast

from remuda.page.growing import GrowingReader, ProgressReader
from remuda.page.run_ids import RunIds
from remuda.page.series_reader import SeriesReader

MOST_BYTES = 256 << 20
REQUEST_S = 0.5
"""Most seconds of reading per request; the thread reads the rest."""
_PAUSE_S = 0.002
"""Between two pieces of a long file: the requests of people go first."""
_WAIT_S = 1.0
FEW_BYTES = 256 << 10
"""Unread bytes up to this size are read at once."""
SOME_BYTES = 8 << 20
"""Unread bytes up to this size are read at once within the budget."""
_PIECE_S = 0.05
"""Seconds of reading a file before the thread turns to the next file."""
_Kind = Literal["series", "progress"]
_R = TypeVar("_R", bound=GrowingReader)


class Budget:
    """Time limit; a call returns True while time is left."""

    def __init__(self, seconds: float) -> None:
        self._end_s = time.monotonic() + seconds

    def __call__(self) -> bool:
        return time.monotonic() < self._end_s


@dataclass
class _Entry(Generic[_R]):
    reader: _R
    lock: threading.Lock = field(default_factory=threading.Lock)
    waits: bool = False
    """True while queued for the thread."""
    forgotten: bool = False
    """True after removal from the library: the rest need not be read."""


class Library:
    """Keeps the most recently used readers. Thread-safe; needs `close`."""

    def __init__(self, ids: RunIds, *, most_bytes: int = MOST_BYTES) -> None:
        self._ids = ids
        self._most_bytes = most_bytes
        self._lock = threading.Condition()
        self._kept: OrderedDict[tuple[_Kind, str], _Entry[GrowingReader]] = OrderedDict()
        self._unread: deque[tuple[str, _Entry[GrowingReader]]] = deque()
        self.whole: dict[str, int] = {}
        """Number of completed reads by the thread, by run: growth means new content."""
        self._answering = 0
        """Number of requests with priority over the thread."""
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def kept_bytes(self) -> int:
        """Bytes of memory of all readers."""
        with self._lock:
            return sum(kept.reader.kept_bytes for kept in self._kept.values())

    def series(
        self, run: str, budget: Callable[[], bool], *, in_part: bool = True
    ) -> AbstractContextManager[SeriesReader]:
        """Lend the reader of a run's time series, after reading within the budget. Without `in_part` a long file is
        read whole or not at all. Raises UnknownRunError, OSError."""
        return self._lent("series", run, lambda: SeriesReader(self._ids.folder(run).series), budget, in_part)

    def progress(
        self, run: str, budget: Callable[[], bool], *, in_part: bool = True
    ) -> AbstractContextManager[ProgressReader]:
        """Lend the reader of a run's progress.txt, like `series`."""
        return self._lent("progress", run, lambda: ProgressReader(self._ids.folder(run).progress), budget, in_part)

    def columns(self, run: str) -> list[str]:
        """Return the columns of a run's progress.txt, from its header alone. Raises UnknownRunError, OSError."""
        folder = self._ids.folder(run)
        kept = self._of("progress", run, lambda: ProgressReader(folder.progress))
        with kept.lock:
            kept.reader.look()
            return [*kept.reader.names]

    @contextlib.contextmanager
    def first(self) -> Generator[None]:
        """Pause the thread while the body answers a request."""
        with self._lock:
            self._answering += 1
        try:
            yield
        finally:
            with self._lock:
                self._answering -= 1
                self._lock.notify_all()

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()

    @contextlib.contextmanager
    def _lent(
        self,
        kind: _Kind,
        run: str,
        make: Callable[[], _R],
        budget: Callable[[], bool],
        in_part: bool,
    ) -> Generator[_R]:
        self._ids.folder(run)
        kept = self._of(kind, run, make)
        with kept.lock:
            self._read_on(run, cast("_Entry[GrowingReader]", kept), budget, in_part)
            yield kept.reader
        self._forget_oldest()

    def _of(self, kind: _Kind, run: str, make: Callable[[], _R]) -> _Entry[_R]:
        with self._lock:
            kept = self._kept.get((kind, run))
            if kept is None:
                kept = self._kept[kind, run] = _Entry(make())
            self._kept.move_to_end((kind, run))
            return cast("_Entry[_R]", kept)

    def _read_on(self, run: str, kept: _Entry[GrowingReader], budget: Callable[[], bool], in_part: bool) -> None:
        """Read at least a piece, unless only the whole file helps and takes too long; leave the rest to the thread. The
        caller holds the lock of the reader."""
        if kept.waits and not in_part:
            return
        kept.reader.look()
        unread = kept.reader.unread_bytes
        if (in_part or unread <= FEW_BYTES or (unread <= SOME_BYTES and budget())) and kept.reader.read(budget):
            return
        if kept.waits:
            return
        kept.waits = True
        with self._lock:
            self._unread.append((run, kept))
            if self._thread is None:
                self._thread = threading.Thread(target=self._read_the_rest, name="remuda-page-reader", daemon=True)
                self._thread.start()
            self._lock.notify_all()

    def _read_the_rest(self) -> None:
        while True:
            with self._lock:
                while (self._answering or not self._unread) and not self._closed:
                    self._lock.wait(_WAIT_S)
                if self._closed:
                    return
                run, kept = self._unread.popleft()
            if self._read_piece(kept):
                if not kept.forgotten:
                    self.whole = {**self.whole, run: self.whole.get(run, 0) + 1}
            else:
                with self._lock:
                    self._unread.append((run, kept))  # other files come first
            time.sleep(_PAUSE_S)

    def _read_piece(self, kept: _Entry[GrowingReader]) -> bool:
        """Read a piece of a file; return True at the end, after an error, or for a removed reader."""
        with kept.lock:
            try:
                budget = Budget(_PIECE_S)
                done = kept.forgotten or kept.reader.read(lambda: budget() and not self._answering)
            except OSError:
                done = True  # the next request gets the error
            if done:
                kept.waits = False
            return done

    def _forget_oldest(self) -> None:
        """Remove the least recently used readers, down to one."""
        while self.kept_bytes > self._most_bytes:
            with self._lock:
                if len(self._kept) <= 1:
                    return
                self._kept.popitem(last=False)[1].forgotten = True
