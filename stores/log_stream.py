"""The worker's side of a log that grows in the run folder as it grows here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from remuda.stores.transfers import LONGEST_PAUSE_S, Saying
from remuda.wire.codec import Frame
from remuda.wire.messages import Grant
from remuda.wire.streams.messages import FromServer, LogAppend, LogHas, Refused

LOG_PIECE_BYTES = 128 << 10
LOG_INTERVAL_S, LOG_LONGEST_S = 1.0, 4.0
"""Between two looks at a log for more; doubled while it does not grow."""


class LogStream:
    """A log that is written on this machine, and grows in the run folder as it grows here. It has no end of its own."""

    def __init__(self, grant: Grant, path: Path) -> None:
        self._grant, self._path = grant, path
        self._number = 0
        self._there = 0
        """Bytes that the run folder has."""
        self._asked = False
        """Whether a piece is on its way."""
        self._due_s = 0.0
        self._pause_s = LOG_INTERVAL_S
        self.settled = False
        self.problem = ""

    @property
    def expects(self) -> bool:
        """Whether a piece is on its way."""
        return self._asked and not self.settled

    @property
    def due_s(self) -> float:
        """When it is looked at for more."""
        return math.inf if self._asked or self.settled else self._due_s

    @property
    def is_complete(self) -> bool:
        """Whether the run folder has all that was written here so far."""
        return self._there >= self._size()

    def open(self, number: int, now_s: float) -> None:
        """See Transfer."""
        self._number, self._asked, self._due_s = number, False, now_s

    def hurry(self) -> None:
        """Send what there is without a pause; for the end of the work."""
        self._due_s = 0.0

    def say(self, now_s: float) -> Iterator[Saying]:
        """See Transfer."""
        if self._asked or self.settled or now_s < self._due_s:
            return
        data = self._read()
        if not data:
            self._due_s, self._pause_s = now_s + self._pause_s, min(2 * self._pause_s, LOG_LONGEST_S)
            return
        self._pause_s = LOG_INTERVAL_S
        yield LogAppend(self._number, self._grant, self._there), [data]
        self._asked = True

    def hear(self, message: FromServer, data: Frame, now_s: float) -> None:
        """See Transfer."""
        match message:
            case LogHas():
                self._asked, self.problem = False, ""
                self._there = message.size_bytes
                self._due_s = now_s if not self.is_complete else now_s + LOG_INTERVAL_S
            case Refused():
                self._asked, self.problem = False, message.reason
                self._due_s = now_s + LONGEST_PAUSE_S
                self.settled = not message.again
            case _:
                pass

    def give_up(self, reason: str) -> None:
        """See Transfer."""
        self.settled = True

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def _read(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._there)
                return file.read(LOG_PIECE_BYTES)
        except OSError:
            return b""
