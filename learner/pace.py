"""How often something may be done beside training: in the long run it takes only its share of the time."""

from __future__ import annotations


class Pace:
    """A budget of time that fills steadily. Knows no clock: the caller says what the time is and what was spent."""

    def __init__(self, share: float, *, ahead_s: float) -> None:
        """`share` of the time, in (0, 1], may be spent, and `ahead_s` seconds before they have been earned."""
        if not 0 < share <= 1 or not ahead_s >= 0:
            raise ValueError(f"share must be in (0, 1] and ahead_s not negative, not {share} and {ahead_s}")
        self._share = share
        self._ahead_s = ahead_s
        self._owed_s = 0.0
        self._owed_at_s = 0.0

    def spent(self, cost_s: float, now_s: float) -> None:
        """Note that something took this number of seconds."""
        self._owed_s, self._owed_at_s = self._owed(now_s) + cost_s, now_s

    def allows(self, now_s: float) -> bool:
        """Whether it may be done again."""
        return self._owed(now_s) <= self._ahead_s

    def _owed(self, now_s: float) -> float:
        return max(0.0, self._owed_s - self._share * (now_s - self._owed_at_s))
