"""The readers of the runs that somebody looks at: in bounded memory, and long files are read meanwhile."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from remuda.page.progress_reader import ProgressReader
from remuda.page.run_ids import RunIds
from remuda.page.series_reader import SeriesReader

MOST_BYTES = 256 << 20
REQUEST_S = 0.5
"""How long one request may read; what is left is read by the thread."""
_PAUSE_S = 0.002
"""Between two pieces of a long file: the requests of people go first."""
_WAIT_S = 1.0
FEW_BYTES = 256 << 10
"""What is left of a file is read at once if it is no more than this."""
SOME_BYTES = 8 << 20
"""And if there is time, if it is no more than this."""
_PIECE_S = 0.05
"""How long the thread reads one file before another has its turn."""
_R = TypeVar("_R", SeriesReader, ProgressReader)


class Budget:
    """How long something may go on; called, it says whether there is time left."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end_s = clock() + seconds

    def __call__(self) -> bool:
        return self._clock() < self._end_s


@dataclass
class _Entry(Generic[_R]):
    reader: _R
    lock: threading.Lock = field(default_factory=threading.Lock)
    waits: bool = False
    """It is among those that the thread will read on."""
    forgotten: bool = False
    """It is no longer kept: nobody needs the rest."""


class Library:
    """Keeps the readers that were used last. For any thread; `close` it."""

    def __init__(self, ids: RunIds, *, most_bytes: int = MOST_BYTES) -> None:
        self._ids = ids
        self._most_bytes = most_bytes
        self._lock = threading.Condition()
        self._series: OrderedDict[str, _Entry[SeriesReader]] = OrderedDict()
        self._progress: OrderedDict[str, _Entry[ProgressReader]] = OrderedDict()
        self._unread: deque[tuple[str, _Entry[Any]]] = deque()
        self.whole: dict[str, int] = {}
        """By run, how often the thread has come to the end of a file: when this grows, there is more to show."""
        self._answering = 0
        """Requests that go first."""
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def kept_bytes(self) -> int:
        """Of memory, by all readers."""
        with self._lock:
            series = sum(kept.reader.kept_bytes for kept in self._series.values())
            return series + sum(kept.reader.kept_bytes for kept in self._progress.values())

    @contextlib.contextmanager
    def series(self, run: str, budget: Callable[[], bool], *, in_part: bool = True) -> Generator[SeriesReader]:
        """Lend the reader of a run's time series, after it has read on within the budget. Without `in_part` it has read
        a long file whole, or else nothing more of it. Raises UnknownRunError, OSError."""
        folder = self._ids.folder(run)
        kept = self._of(self._series, run, lambda: SeriesReader(folder.series))
        with kept.lock:
            self._read_on(run, kept, budget, in_part)
            yield kept.reader
        self._forget_oldest()

    @contextlib.contextmanager
    def progress(self, run: str, budget: Callable[[], bool], *, in_part: bool = True) -> Generator[ProgressReader]:
        """Lend the reader of a run's progress.txt, as `series`."""
        folder = self._ids.folder(run)
        kept = self._of(self._progress, run, lambda: ProgressReader(folder.progress))
        with kept.lock:
            self._read_on(run, kept, budget, in_part)
            yield kept.reader
        self._forget_oldest()

    def columns(self, run: str) -> list[str]:
        """Those of a run's progress.txt, of which nothing more is read. Raises UnknownRunError, OSError."""
        folder = self._ids.folder(run)
        kept = self._of(self._progress, run, lambda: ProgressReader(folder.progress))
        with kept.lock:
            kept.reader.look()
            return [*kept.reader.names]

    @contextlib.contextmanager
    def first(self) -> Generator[None]:
        """While the body runs, which answers somebody, the thread reads nothing."""
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

    def _of(self, shelf: OrderedDict[str, _Entry[_R]], run: str, make: Callable[[], _R]) -> _Entry[_R]:
        with self._lock:
            kept = shelf.get(run)
            if kept is None:
                kept = shelf[run] = _Entry(make())
            shelf.move_to_end(run)
            return kept

    def _read_on(self, run: str, kept: _Entry[_R], budget: Callable[[], bool], in_part: bool) -> None:
        """Read a piece at least, unless only the whole helps and that takes too long; the rest is left to the thread.
        Its lock is held."""
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
                    self._unread.append((run, kept))  # the others have their turn
            time.sleep(_PAUSE_S)

    def _read_piece(self, kept: _Entry[Any]) -> bool:
        """Read some of a file; whether it is read whole, or cannot be read, or need not be."""
        with kept.lock:
            try:
                budget = Budget(_PIECE_S)
                done = kept.forgotten or bool(kept.reader.read(lambda: budget() and not self._answering))
            except OSError:
                done = True  # whoever asks next is told
            if done:
                kept.waits = False
            return done

    def _forget_oldest(self) -> None:
        """Of both kinds by turns, the ones that nobody has asked for longest; one of each stays."""
        while self.kept_bytes > self._most_bytes:
            with self._lock:
                if max(len(self._series), len(self._progress)) <= 1:
                    return
                shelf: OrderedDict[str, Any] = self._series
                if len(self._series) < len(self._progress):
                    shelf = self._progress
                shelf.popitem(last=False)[1].forgotten = True
