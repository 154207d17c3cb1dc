"""A run that is held up: why, and until when it may be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hold:
    """The disk of a run accepts no writes, or not what its workers want to write."""

    why: str
    until_s: float
    """When the run fails, by the coordinator's clock, unless its disk accepts writes before."""
    journals: bool = False
    """The journal can still be written: messages about the run are handled."""

    def explain(self, now_s: float) -> str:
        """What is wrong and how long the run still waits, for people."""
        left_s = max(self.until_s - now_s, 0.0)
        return f"{self.why}; the run fails in {left_s:.0f} s unless its disk takes writes before"
