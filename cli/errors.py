"""The errors of commands, and their exit codes."""

from __future__ import annotations

FAILED = 1
WRONG_INPUT = 2
REFUSED = 3


class CommandError(Exception):
    """A command cannot continue. Its text is the only message that the user gets: what, where, what to do."""

    exit_code = FAILED


class RunFailedError(CommandError):
    """The run or the service failed."""


class InputError(CommandError):
    """The input was wrong; nothing was started and nothing written."""

    exit_code = WRONG_INPUT


class CommandRefusedError(CommandError):
    """The other side refused: it has another protocol version, or does not allow this key that."""

    exit_code = REFUSED


def exit_code(error: Exception) -> int | None:
    """The exit code for `error`; None for an unexpected error, which is shown with its traceback."""
    from remuda.config.errors import ConfigError
    from remuda.storage.existing_folder import RunFolderError
    from remuda.storage.ownership import FolderOwnedError

    if isinstance(error, CommandError):
        return error.exit_code
    if isinstance(error, ConfigError | RunFolderError | FolderOwnedError):
        return WRONG_INPUT
    return None
