"""Rows of a kind that have changed since they were journaled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from remuda.training.snapshot import Rows, RowT

KeyT = TypeVar("KeyT", int, str)


class ChangedRows(Generic[KeyT]):
    """Keeps the keys of changed rows; a row itself is made only when needed."""

    def __init__(self) -> None:
        self.put: set[KeyT] = set()
        """The row of this key is new or different."""
        self._gone: set[KeyT] = set()

    def drop(self, key: KeyT) -> None:
        """The row of this key is gone."""
        self.put.discard(key)
        self._gone.add(key)

    def take(self, row: Callable[[KeyT], RowT]) -> Rows[RowT]:
        """The changes since the last call; `row` makes the row of a key."""
        rows = Rows(tuple(row(key) for key in sorted(self.put)), tuple(sorted(self._gone - self.put)))
        self.put, self._gone = set(), set()
        return rows
