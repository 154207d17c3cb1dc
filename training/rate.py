"""How fast a counter grows."""

from __future__ import annotations

from collections import deque

RATE_WINDOW_S = 10.0
"""The window over which rates are measured, in seconds."""


class Rate:
    """Growth of a counter per second over a sliding window. One sample at most every half second is kept."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, value: int, now_s: float) -> None:
        """The counter has this value now."""
        if not self._samples or now_s - self._samples[-1][0] >= 0.5:
            self._samples.append((now_s, value))
        while len(self._samples) > 2 and now_s - self._samples[0][0] > RATE_WINDOW_S:
            self._samples.popleft()

    def per_s(self) -> float:
        """Growth per second; 0 before there are two samples."""
        if len(self._samples) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_s - first_s)
