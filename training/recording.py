"""Writes what both modes record of a run to its logs and to index.json."""

from __future__ import annotations

from remuda.logbook.book import Logbook
from remuda.storage.checkpoint_index import CheckpointIndex, drop_models
from remuda.storage.run_folder import RunFolder
from remuda.training.effects import (
    Emit,
    LogLine,
    RecordCheckpoint,
    RecordEffect,
    RecordReward,
    WriteProgress,
    WriteTimers,
)


def record(effect: RecordEffect, folder: RunFolder, log: Logbook, checkpoints: CheckpointIndex) -> None:
    """Carry out one effect. Raises OSError if the disk refuses, and CheckpointIndexError."""
    match effect:
        case Emit():
            log.emit(effect.report)
        case WriteProgress():
            log.progress(effect.row)
        case WriteTimers():
            log.timers(effect.document)
        case LogLine():
            log.say("commander", effect.text, level=effect.level, at=effect.at)
        case RecordCheckpoint():
            gone = checkpoints.add(effect.record, keep=effect.keep, in_use=effect.in_use)
            drop_models(folder, gone)
            if effect.interrupted:
                checkpoints.link_interrupt(effect.record.train_iter)
        case RecordReward():
            checkpoints.set_reward(
                effect.train_iter, effect.reward, task=effect.task, kwargs_json=effect.kwargs_json, best=effect.best
            )
