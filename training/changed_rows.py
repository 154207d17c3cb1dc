"""Rows of a kind that have changed since they were journaled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from msgspec import Struct


class Row(Protocol):
    """State of a lease, place or worker."""

    @property
    def key(self) -> int | str:
        """Key among rows of its kind."""
        ...


RowT = TypeVar("RowT", bound=Row)
KeyT = TypeVar("KeyT", int, str)


class Rows(Struct, Generic[RowT], frozen=True):
    """Changed rows of one kind, and the keys of removed rows."""

    put: tuple[RowT, ...] = ()
    gone: tuple[int | str, ...] = ()


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
