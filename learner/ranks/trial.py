"""Whether several ranks learn faster than one would: tried with the first batches of a lease."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

WARM_UP = 3
"""Batches that are not measured: the first ones cost more."""
MEASURED = 20
"""Batches that are measured, of each kind."""


@dataclass(frozen=True)
class Verdict:
    """What a trial has found."""

    faster: bool
    """Whether the ranks learn faster together than one would."""
    text: str
    """For the log."""


class RanksTrial:
    """For some batches rank 0 takes all rows but one for each other rank, and the time that it computes is that of one
    rank with the whole batch. For the next ones the rows are shared. What is learned is the same. Reads no clock."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._seen = 0
        self._alone_s: list[float] = []
        self._together_s: list[float] = []

    @property
    def alone(self) -> bool:
        """Whether rank 0 is to take nearly all rows of the next batch."""
        return self._seen < WARM_UP + MEASURED

    @property
    def over(self) -> bool:
        """Whether nothing is measured any more."""
        return self._seen >= 2 * (WARM_UP + MEASURED)

    def note(self, *, update_s: float, computing_s: float) -> None:
        """Note the time of a batch, and the part of it in which rank 0 itself was computing."""
        if self._seen % (WARM_UP + MEASURED) >= WARM_UP:
            (self._alone_s if self.alone else self._together_s).append(computing_s if self.alone else update_s)
        self._seen += 1

    def verdict(self) -> Verdict:
        """What was found, once it is over."""
        alone_s, together_s = median(self._alone_s), median(self._together_s)
        text = (
            f"{self._world_size} ranks take {1e3 * together_s:.3g} ms for a batch, and one would take about "
            f"{1e3 * alone_s:.3g} ms"
        )
        if together_s < alone_s:
            return Verdict(True, text)
        return Verdict(False, f"{text}: they gain nothing, so set learner.ranks to 1 or learn from larger batches")
