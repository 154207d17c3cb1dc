"""Opens a run's logbook with what its config asks for: columns of progress.txt, and sinks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from remuda.config.schema import ExperimentConfig
from remuda.logbook.book import Logbook
from remuda.logbook.row_sinks import attach_configured
from remuda.policy.algorithms import declaration
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Counters


class LogbookOfMode(Protocol):
    """serial_logbook, or commander_logbook."""

    def __call__(
        self,
        run: RunFolder,
        loss_columns: Sequence[str],
        *,
        episode_info: Sequence[str],
        collected: Sequence[str],
        evaluates: bool,
        has_tasks: bool,
        resumed: Counters | None,
    ) -> Logbook:
        """Open all logs."""
        ...


def open_logbook(
    of_mode: LogbookOfMode,
    folder: RunFolder,
    config: ExperimentConfig,
    resumed: Counters | None,
    *,
    sinks: bool = True,
) -> Logbook:
    """Open a run's logs, cut off where a resumed run continues; with the sinks of the config unless others are
    given."""
    declared = declaration(config)
    log = of_mode(
        folder,
        tuple(declared.loss_columns),
        episode_info=config.env.episode_info,
        collected=declared.collected,
        evaluates=config.evaluator.episodes > 0,
        has_tasks=bool(config.env.schedule),
        resumed=resumed,
    )
    if sinks:
        attach_configured(log, config, folder, resumed)
    return log
