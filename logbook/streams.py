"""Streams before standard output and standard error, to write without waiting, and to copy text to the log of a run."""

from __future__ import annotations

import contextlib
import io
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import TextIO

WAITING_AT_MOST = 1_000
"""Most queued writes; more are dropped, and counted in a line as soon as the queue has room."""
END_S = 1.0
KEPT_AT_MOST = 1_000
"""Most lines that wait for a log, or for the thread of the log; the oldest are dropped first."""
LONGEST = 10_000
"""Characters of a line; a longer line is split."""


class ForwardingStream(io.TextIOBase):
    """Base of streams with descriptor, terminal and encoding of another stream. Subclasses define `write`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def writable(self) -> bool:
        """Always true."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of the other stream. Raises OSError for a stream without descriptor."""
        return self._stream.fileno()

    def isatty(self) -> bool:
        """Return True if the other stream is a terminal."""
        return self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the other stream."""
        return self._stream.encoding


class BestEffortStream(ForwardingStream):
    """Passes text on to a stream in a separate thread.

    With a full disk, a closed terminal or a pipe that is not read, the text is lost, but the writer does not notice.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._waiting: queue.Queue[str | None] = queue.Queue(WAITING_AT_MOST)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="best-effort stream", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Queue the text for writing; may be called by any thread."""
        try:
            if self._dropped:
                self._waiting.put_nowait(f"({self._dropped} messages were not written)\n")
                self._dropped = 0
            self._waiting.put_nowait(text)
        except queue.Full:
            self._dropped += 1
        return len(text)

    def finish(self) -> None:
        """Wait a moment for queued text to be written."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
            self._thread.join(END_S)

    def _run(self) -> None:
        while (text := self._waiting.get()) is not None:
            with contextlib.suppress(OSError, ValueError):  # full, or closed
                self._stream.write(text)
                self._stream.flush()


@contextlib.contextmanager
def best_effort_stderr() -> Generator[None]:
    """Replace standard error by a BestEffortStream while the body runs."""
    before, stream = sys.stderr, BestEffortStream(sys.stderr)
    sys.stderr = stream
    try:
        yield
    finally:
        sys.stderr = before
        stream.finish()


class PrintedStream(ForwardingStream):
    """Passes text on to a stream, and keeps whole lines for a log.

    A log belongs to one thread: text of other threads waits until the thread prints, or ends the log.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lock = threading.RLock()
        self._begun = ""
        """An unfinished line."""
        self._lines: deque[str] | None = None
        """None without a log."""
        self._log: Callable[[str], None] | None = None
        self._thread = 0
        self._logging = False

    def write(self, text: str) -> int:
        """Write to the stream, ignoring errors of the stream, and keep whole lines for the log."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        with self._lock:
            if self._lines is not None:
                *whole, self._begun = (self._begun + text).split("\n")
                if len(self._begun) > LONGEST:
                    whole, self._begun = [*whole, self._begun], ""
                self._lines.extend(whole)
        self._write_log()
        return len(text)

    def begin(self) -> None:
        """Start to keep the printed text."""
        with self._lock:
            self._lines, self._begun, self._log = deque(maxlen=KEPT_AT_MOST), "", None

    def into(self, say: Callable[[str], None]) -> None:
        """Write kept and further lines to this log of the calling thread."""
        with self._lock:
            self._log, self._thread = say, threading.get_ident()
        self._write_log()

    def end(self) -> None:
        """Write the remaining lines to the log, and detach the log."""
        with self._lock:
            if self._lines is not None and self._begun:
                self._lines.append(self._begun)
        self._write_log()
        with self._lock:
            self._lines, self._log = None, None

    def _write_log(self) -> None:
        """Write kept lines to the log, except text printed by this call."""
        with self._lock:
            if self._logging or self._log is None or not self._lines or self._thread != threading.get_ident():
                return
            text = "\n".join(self._lines).strip("\n")
            self._lines.clear()
            say, self._logging = self._log, True
        try:
            if text:
                say(text)
        finally:
            self._logging = False

    def flush(self) -> None:
        """Flush the other stream, ignoring errors."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


@contextlib.contextmanager
def printed() -> Generator[None]:
    """Replace standard output and standard error by PrintedStreams while the body runs."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = PrintedStream(sys.stdout), PrintedStream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def keep_printed() -> None:
    """Start to keep printed text for the log of a run, opened later. Does nothing outside `printed`."""
    for stream in _streams():
        stream.begin()


def log_printed(say: Callable[[str], None]) -> None:
    """Write kept and further lines to the open log, by this thread."""
    for stream in _streams():
        stream.into(say)


def end_printed() -> None:
    """Write the remaining lines, before the log is closed."""
    for stream in _streams():
        stream.end()


def _streams() -> list[PrintedStream]:
    return [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, PrintedStream)]
