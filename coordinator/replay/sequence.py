"""Which numbers of a contiguous series have been seen, in memory that does not grow with the series."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


class TooManyGapsError(ValueError):
    """Noting the number would leave more holes in the series than are remembered."""


class SequenceSet:
    """A set of numbers that are expected in order, from 0: the highest one seen, and the gaps below it.

    Memory is O(gaps), however long the series and each gap; a number in order costs O(1) time.
    """

    def __init__(self, *, max_gaps: int = 4_096) -> None:
        self._max_gaps = max_gaps
        self._high_water = -1
        self._gaps: list[range] = []  # ascending, never empty ones, never touching

    @property
    def high_water(self) -> int:
        """The highest number seen; -1 before any."""
        return self._high_water

    @property
    def missing(self) -> tuple[range, ...]:
        """The gaps: ranges of numbers below the highest that were not seen, ascending."""
        return tuple(self._gaps)

    def __contains__(self, number: int) -> bool:
        return 0 <= number <= self._high_water and self._gap_of(number) is None

    def add(self, number: int) -> bool:
        """Note `number` as seen; False when it had been seen before.

        Raises ValueError for a negative number, and TooManyGapsError, leaving the set as it was, when there would be
        more than `max_gaps` gaps.
        """
        if number < 0:
            raise ValueError(f"{number} is below 0, where the series begins")
        if number == self._high_water + 1:
            self._high_water = number
            return True
        if number > self._high_water:
            self._replace(len(self._gaps), len(self._gaps), range(self._high_water + 1, number))
            self._high_water = number
            return True
        position = self._gap_of(number)
        if position is None:
            return False
        gap = self._gaps[position]
        self._replace(position, position + 1, range(gap.start, number), range(number + 1, gap.stop))
        return True

    @classmethod
    def of(cls, high_water: int, missing: Iterable[range]) -> SequenceSet:
        """The set whose `high_water` and `missing` were these."""
        restored = cls()
        restored._high_water, restored._gaps = high_water, list(missing)
        return restored

    def _gap_of(self, number: int) -> int | None:
        position = bisect_left(self._gaps, number + 1, key=lambda gap: gap.stop)
        return position if position < len(self._gaps) and number in self._gaps[position] else None

    def _replace(self, start: int, stop: int, *gaps: range) -> None:
        new = [gap for gap in gaps if gap]
        total = len(self._gaps) - (stop - start) + len(new)
        if total > self._max_gaps:
            raise TooManyGapsError(
                f"{total} gaps below {self._high_water} would have to be remembered; the most is {self._max_gaps}"
            )
        self._gaps[start:stop] = new
