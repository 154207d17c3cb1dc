"""The sinks in `log.sinks`, which receive the rows of progress.txt without disturbing a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from remuda.config.custom import sink_reference
from remuda.config.plain import masked
from remuda.config.schema import ExperimentConfig
from remuda.config.workers import SinkName
from remuda.logbook.book import Logbook, RowSink
from remuda.logbook.progress import CsvSink, JsonLinesSink
from remuda.logbook.sink_process import ProcessService
from remuda.logbook.trackers import BackgroundSink, Service, mlflow_run, require, wandb_run
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Counters


@dataclass(frozen=True)
class SinkContext:
    """Facts about a run for its sinks."""

    run: RunFolder
    name: str
    settings: Mapping[str, JsonValue]
    """Config without secrets."""
    resumed_env_step: int | None = None
    """First step of the continuation of a resumed run; later rows are removed if the sink supports that."""
    source_dir: str | None = None
    """Folder with the module of a `module:Class`."""


def settings_of(config: ExperimentConfig) -> dict[str, JsonValue]:
    """Return the config without secrets, for trackers and TensorBoard."""
    return cast("dict[str, JsonValue]", masked(config.model_dump(mode="json")))


def attach_configured(book: Logbook, config: ExperimentConfig, run: RunFolder, resumed: Counters | None) -> None:
    """Attach the sinks in `log.sinks`."""
    settings = settings_of(config)
    step = None if resumed is None else resumed.env_step
    attach_sinks(book, config.log.sinks, SinkContext(run, config.name, settings, step, config.source_dir))


def attach_sinks(book: Logbook, names: Sequence[SinkName], context: SinkContext) -> None:
    """Open sinks and attach all to `book`. After a failure a sink is left out, with a warning."""
    for name in names:
        try:
            book.sinks.append(_opened(name, context))
        except Exception as error:  # any error of a file or a package
            warning = f"sink {name} is left out; the run continues: {error}"
            print(f"remuda: {warning}", file=sys.stderr)
            book.say("commander", warning, level="warning")


def _opened(name: SinkName, context: SinkContext) -> RowSink:
    opener = _OPENERS.get(name)
    return _own(name, context) if opener is None else opener(context)


def _own(name: str, context: SinkContext) -> RowSink:
    """A sink of the user's, or of an installed package. Raises UserCodeError."""
    reference = sink_reference(name)
    folder = context.run.log / "sinks" / name.replace(":", ".")
    folder.mkdir(parents=True, exist_ok=True)
    return BackgroundSink(
        folder,
        partial(ProcessService, reference, folder, context.name, context.settings, source_dir=context.source_dir),
    )


def _service(
    module: str, connect: Callable[[Path, str, Mapping[str, JsonValue]], Service], context: SinkContext
) -> RowSink:
    require(module, module)
    folder = context.run.log / module
    folder.mkdir(exist_ok=True)
    return BackgroundSink(folder, partial(connect, folder, context.name, context.settings), takes_callbacks=True)


_OPENERS: dict[str, Callable[[SinkContext], RowSink]] = {
    "csv": lambda context: CsvSink(context.run.progress_csv, resumed_env_step=context.resumed_env_step),
    "jsonl": lambda context: JsonLinesSink(context.run.progress_jsonl, resumed_env_step=context.resumed_env_step),
    "wandb": partial(_service, "wandb", wandb_run),
    "mlflow": partial(_service, "mlflow", mlflow_run),
}
