"""Who a worker is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count


@dataclass(frozen=True)
class WorkerIdentity:
    """One life of a worker. The numbers of its chunks run through the whole life, over all its leases."""

    uuid: str
    incarnation: int
    _sequence: Iterator[int] = field(default_factory=count)

    def next_sequence(self) -> int:
        """The number of its next chunk: 0, 1, 2 … without holes."""
        return next(self._sequence)
