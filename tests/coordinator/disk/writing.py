"""Writes a run's files as its lane does, without a thread."""

from __future__ import annotations

from remuda.coordinator.disk.disk import RunWriter
from remuda.coordinator.disk.run_folder import RunEffect
from remuda.coordinator.disk.run_folders import RunBooks
from remuda.coordinator.effects import Remember


def carry_out(books: RunBooks, effect: RunEffect) -> None:
    assert effect.experiment is not None
    RunWriter(books, None, effect.experiment).carry_out(effect)


def journal(books: RunBooks, turn: Remember) -> None:
    RunWriter(books, None, turn.experiment).journal([turn])
