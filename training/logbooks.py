"""Opens a run's logbook with what its config asks for: columns of progress.txt, and sinks."""

from __future__ import annotations

from collections.abc import Callable

from remuda.config.schema import ExperimentConfig
from remuda.logbook.book import Logbook
from remuda.logbook.progress import ProgressColumns
from remuda.logbook.row_sinks import attach_configured
from remuda.policy.algorithms import declaration
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Counters


def open_logbook(
    of_mode: Callable[[RunFolder, ProgressColumns, Counters | None], Logbook],
    folder: RunFolder,
    config: ExperimentConfig,
    resumed: Counters | None,
    *,
    sinks: bool = True,
) -> Logbook:
    """Open a run's logs, cut off where a resumed run continues; with the sinks of the config unless others are
    given."""
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
