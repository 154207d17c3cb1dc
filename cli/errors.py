"""Errors of commands, with exit codes."""

from __future__ import annotations

FAILED = 1
WRONG_INPUT = 2
REFUSED = 3

_PACKAGE = "remuda."
OF_INPUT = frozenset({
    "buffer.episodes.DatasetError",
    "client.checking.UnusableError", "client.examples.ExampleError", "client.plots.runs.PlotError",
    "client.sweeps.record.SweepFileError", "config.errors.ConfigError", "config.user_code.UserCodeError",
    "deploy.rank_place.RankPlaceError", "environments.errors.EnvironmentBuildError",
    "environments.errors.UnsupportedSpaceError", "logbook.series.SeriesError",
    "logbook.tail.NoSuchSourceError",
    "policy.algorithms.UnknownAlgorithmError", "policy.files.checkpoint_file.CheckpointError",
    "policy.networks.tensors.DeviceError", "policy.row_plan.SmallBufferError",
    "storage.bucket.address.BucketError", "storage.checkpoint_index.CheckpointIndexError",
    "storage.existing_folder.RunFolderError",
    "storage.lock.FolderOwnedError", "training.journal_database.JournalError",
    "wire.connection_file.ConnectionFileError", "wire.keys.pair.NoCurveError",
})  # fmt: skip
OF_RUNS = frozenset({
    "client.sweeps.lineage.LineageError", "deploy.launcher.LaunchError", "policy.export.exporting.ExportError",
    "storage.bucket.address.NotShippedError", "wire.conversation.UnreachableError",
})  # fmt: skip
"""Errors by module and class: importing all these modules would take seconds."""
REFUSAL = "wire.conversation.RefusedError"
_NOT_PERMITTED = ("protocol", "forbidden")
"""Codes of refusals by the coordinator that no other input would avoid."""


class CommandError(Exception):
    """A command cannot continue. The text is the only message to the user: problem, place, remedy."""

    exit_code = FAILED


class RunFailedError(CommandError):
    """The run or the service failed."""


class InputError(CommandError):
    """The input was wrong; nothing was started and nothing written."""

    exit_code = WRONG_INPUT


def text_of(error: Exception) -> str:
    """Return the text of an error, with its notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def exit_code(error: Exception) -> int | None:
    """Return the exit code for `error`; None for an unexpected error, which needs a traceback."""
    if isinstance(error, CommandError):
        return error.exit_code
    kinds = {f"{kind.__module__}.{kind.__qualname__}".removeprefix(_PACKAGE) for kind in type(error).__mro__}
    if kinds & OF_INPUT:
        return WRONG_INPUT
    if REFUSAL in kinds:
        return REFUSED if getattr(error, "code", None) in _NOT_PERMITTED else WRONG_INPUT
    return FAILED if kinds & OF_RUNS else None
