"""Writes a run's files as its lane does, without a thread."""

from __future__ import annotations

from remuda.coordinator.disk.run_folder import RunEffect
from remuda.coordinator.disk.run_folders import RunFolders
from remuda.coordinator.disk.runs_folder import RunWriter
from remuda.training.journal_entry import JournalEntry


def carry_out(folders: RunFolders, effect: RunEffect) -> None:
    assert effect.experiment is not None
    RunWriter(folders, None, effect.experiment).carry_out(effect)


def journal(folders: RunFolders, turn: JournalEntry) -> None:
    RunWriter(folders, None, turn.experiment).journal([turn])
