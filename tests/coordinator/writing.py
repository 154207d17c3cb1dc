"""Writes a run's files as its lane does, without a thread."""

from __future__ import annotations

from remuda.coordinator.disk import RunWriter
from remuda.coordinator.effects import Remember
from remuda.coordinator.run_book import RunEffect
from remuda.coordinator.run_books import RunBooks


def carry_out(books: RunBooks, effect: RunEffect) -> None:
    assert effect.experiment is not None
    RunWriter(books, None, effect.experiment).carry_out(effect)


def journal(books: RunBooks, turn: Remember) -> None:
    RunWriter(books, None, turn.experiment).journal([turn])
