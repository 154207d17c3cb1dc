"""Log lines about strangers and faulty peers, throttled so no peer can fill the disk."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from remuda.logbook.lines import unforgeable

INTERVAL_S = 5.0
"""Time between two lines of a kind."""


class ThrottledLines:
    """Prints lines of a kind to standard error; drops lines that come too soon after the last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_s = 0.0

    @property
    def due(self) -> bool:
        """True if the next line would be printed."""
        return self._clock() >= self._due_s

    def say(self, text: str) -> None:
        """Print a line, if due."""
        if self.due:
            self._due_s = self._clock() + INTERVAL_S
            print(unforgeable(text), file=sys.stderr, flush=True)
