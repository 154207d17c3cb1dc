"""Opens a run's logs and writes its records in both modes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from remuda.config.schema import ExperimentConfig
from remuda.logbook.book import Logbook
from remuda.logbook.progress import ProgressColumns
from remuda.logbook.row_sinks import attach_configured
from remuda.policy.algorithms import declaration
from remuda.storage.atomic import write_bytes
from remuda.storage.checkpoint_index import CheckpointIndex, drop_models
from remuda.storage.run_folder import RunFolder
from remuda.training.effects import (
    Emit,
    LogLine,
    RecordCheckpoint,
    RecordEffect,
    RecordReward,
    WriteLeague,
    WriteProgress,
    WriteTimers,
)
from remuda.wire.messages import Counters


def record(effect: RecordEffect, folder: RunFolder, log: Logbook, checkpoints: CheckpointIndex) -> None:
    """Carry out one effect. Raises OSError if the disk refuses, and CheckpointIndexError."""
    match effect:
        case Emit():
            log.emit(effect.report)
        case WriteProgress():
            log.progress(effect.row)
        case WriteTimers():
            log.timers(effect.document)
        case WriteLeague():
            write_bytes(folder.league, msgspec.json.format(msgspec.json.encode(effect.document)), durable=False)
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


def open_logbook(
    of_mode: Callable[[RunFolder, ProgressColumns, Counters | None], Logbook],
    folder: RunFolder,
    config: ExperimentConfig,
    resumed: Counters | None,
    *,
    sinks: bool = True,
) -> Logbook:
    """Open a run's logs, cut off at the start of a resumed run; with the sinks of the config unless
    `sinks` is False."""
    declared = declaration(config)
    columns = ProgressColumns(
        tuple(declared.loss_columns),
        episode_info=config.env.episode_info,
        collected=declared.collected,
        evaluates=config.evaluator.episodes > 0,
        has_tasks=bool(config.env.schedule),
    )
    log = of_mode(folder, columns, resumed)
    if sinks:
        attach_configured(log, config, folder, resumed)
    return log
