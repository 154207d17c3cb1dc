"""How often something may be done beside training, so that it takes no more than its share of the time."""

from __future__ import annotations


class Pace:
    """Knows no clock: the caller says what the time is and what was spent."""

    def __init__(self, share: float) -> None:
        """`share` of the time, in (0, 1], may be spent."""
        if not 0 < share <= 1:
            raise ValueError(f"share must be in (0, 1], not {share}")
        self._share = share
        self._next_s = float("-inf")

    def spent(self, cost_s: float, begun_s: float) -> None:
        """What began at `begun_s` took `cost_s` seconds of the processor."""
        self._next_s = begun_s + cost_s / self._share

    def allows(self, now_s: float) -> bool:
        """Say whether enough time has passed since to do it again."""
        return now_s >= self._next_s
