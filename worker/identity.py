"""Who a worker is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count


@dataclass(frozen=True)
class WorkerIdentity:
    """One incarnation of a worker. Its chunks, or reanalyses, are numbered through the whole incarnation, over all
    leases."""

    uuid: str
    incarnation: int
    _sequence: Iterator[int] = field(default_factory=count)

    def next_sequence(self) -> int:
        """The number of its next chunk or reanalysis: 0, 1, 2 … without gaps."""
        return next(self._sequence)
