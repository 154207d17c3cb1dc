"""Measures with the first batches of a lease if several ranks learn faster than one rank."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

WARM_UP = 3
"""Batches before the measurement: the first batches are slower."""
MEASURED = 20
"""Measured batches of each kind."""


@dataclass(frozen=True)
class Verdict:
    """Result of a trial."""

    faster: bool
    """True if the ranks together learn faster than one rank."""
    text: str
    """For the log."""


class RanksTrial:
    """Compares one rank with all ranks. In the first batches rank 0 takes all rows but one per other rank, for the
    computing time of one rank. In the next batches the ranks share the rows. Learning is the same in both. Reads no
    clock."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._seen = 0
        self._alone_s: list[float] = []
        self._together_s: list[float] = []

    @property
    def alone(self) -> bool:
        """True if rank 0 takes nearly all rows of the next batch."""
        return self._seen < WARM_UP + MEASURED

    @property
    def over(self) -> bool:
        """True once the measurement has ended."""
        return self._seen >= 2 * (WARM_UP + MEASURED)

    def note(self, *, update_s: float, computing_s: float) -> None:
        """Record the duration of a batch, and rank 0's own computing time within."""
        if self._seen % (WARM_UP + MEASURED) >= WARM_UP:
            (self._alone_s if self.alone else self._together_s).append(computing_s if self.alone else update_s)
        self._seen += 1

    def verdict(self) -> Verdict:
        """Return the result; call after the measurement has ended."""
        alone_s, together_s = median(self._alone_s), median(self._together_s)
        text = (
            f"{self._world_size} ranks take {1e3 * together_s:.3g} ms for a batch, and one would take about "
            f"{1e3 * alone_s:.3g} ms"
        )
        if together_s < alone_s:
            return Verdict(True, text)
        return Verdict(False, f"{text}: they gain nothing, so set learner.ranks to 1 or learn from larger batches")
