"""Which rows of a kind have changed since they were journaled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from remuda.training.snapshot import Rows, RowT

KeyT = TypeVar("KeyT", int, str)


class ChangedRows(Generic[KeyT]):
    """Keys of rows; a row is made only when it is asked for."""

    def __init__(self) -> None:
        self.put: set[KeyT] = set()
        """New or different."""
        self._gone: set[KeyT] = set()

    def drop(self, key: KeyT) -> None:
        """There is no such row any more."""
        self.put.discard(key)
        self._gone.add(key)

    def take(self, row: Callable[[KeyT], RowT]) -> Rows[RowT]:
        """What has changed since the last call; `row` makes the row of a key."""
        rows = Rows(tuple(row(key) for key in sorted(self.put)), tuple(sorted(self._gone - self.put)))
        self.put, self._gone = set(), set()
        return rows
