"""Search for disk space for workers, repeated until found."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

AGAIN_S = 1.0
"""Time between two looks."""
LEAST_BYTES = 1 << 16
"""Minimum size of the search: with less, not even the journal can be written for long."""


class Room:
    """Disk space that a run lacks. `want` is for the coordinator's thread, `look` for the run's thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.wanted_bytes = 0
        """0: nothing is lacking."""
        self.problem: str | None = None
        """Reason for the lack of space; None if unknown, also if the disk does not answer."""
        self._since_s = 0.0
        self._check_s = 0.0

    def want(self, size_bytes: int) -> None:
        """Look for so many bytes from now on, until found."""
        if not self.wanted_bytes:
            self._since_s = self._check_s = self._clock()
        self.wanted_bytes = max(size_bytes, self.wanted_bytes, LEAST_BYTES)

    def give_up(self) -> None:
        """End the search."""
        self.wanted_bytes = 0

    @property
    def is_due(self) -> bool:
        """True if the next look is due."""
        return self.wanted_bytes > 0 and self._clock() >= self._check_s

    def lacking_s(self, now_s: float) -> float:
        """Duration of the search; 0 without a search."""
        return now_s - self._since_s if self.wanted_bytes else 0.0

    def look(self, check: Callable[[int], None]) -> None:
        """Look if due. `check` raises OSError without room for so many bytes."""
        if not self.is_due:
            return
        try:
            check(self.wanted_bytes)
        except OSError as error:
            self.problem, self._check_s = str(error), self._clock() + AGAIN_S
        else:
            self.wanted_bytes, self.problem = 0, None


def check_room(folder: Path, size_bytes: int) -> None:
    """Raise OSError unless a file of this size can be written in the folder. The file is removed again."""
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        except OSError as error:
            raise OSError(error.errno, f"no room for {size_bytes} bytes in {folder}: {error.strerror}") from error
