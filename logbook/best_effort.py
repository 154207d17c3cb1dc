"""A stream for messages that people may read or not: writing to it never waits and never fails."""

from __future__ import annotations

import contextlib
import io
import queue
import sys
import threading
from collections.abc import Generator
from typing import TextIO

WAITING_AT_MOST = 1_000
"""Writes that wait for a reader; beyond that they are dropped, and their number is written once there is room."""
END_S = 1.0


class BestEffortStream(io.TextIOBase):
    """Passes text on to a stream by a thread of its own.

    A full disk, a terminal that was closed and a pipe that nobody reads cost the text, and the writer nothing.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: queue.Queue[str | None] = queue.Queue(WAITING_AT_MOST)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="best-effort stream", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Have it written some time; from any thread."""
        try:
            if self._dropped:
                self._waiting.put_nowait(f"({self._dropped} messages were not written)\n")
                self._dropped = 0
            self._waiting.put_nowait(text)
        except queue.Full:
            self._dropped += 1
        return len(text)

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """Of the stream behind it."""
        return self._stream.fileno()

    def isatty(self) -> bool:
        """As the stream behind it."""
        return self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As the stream behind it."""
        return self._stream.encoding

    def finish(self) -> None:
        """Give what waits a moment to be written."""
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
    """Let standard error be such a stream while the body runs."""
    before, stream = sys.stderr, BestEffortStream(sys.stderr)
    sys.stderr = stream
    try:
        yield
    finally:
        sys.stderr = before
        stream.finish()
