"""A stream for messages that need not be read: writing to it never waits and never fails."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Generator
from typing import TextIO

from remuda.logbook.forwarding_stream import ForwardingStream

WAITING_AT_MOST = 1_000
"""Writes that may wait; more are dropped, and their number is written when there is room again."""
END_S = 1.0


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
    """Replace standard error by such a stream while the body runs."""
    before, stream = sys.stderr, BestEffortStream(sys.stderr)
    sys.stderr = stream
    try:
        yield
    finally:
        sys.stderr = before
        stream.finish()
