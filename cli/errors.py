"""Errors of commands, with exit codes."""

from __future__ import annotations

FAILED = 1
WRONG_INPUT = 2
REFUSED = 3


class CommandError(Exception):
    """A command cannot continue. The text is the only message to the user: problem, place, remedy."""

    exit_code = FAILED


class RunFailedError(CommandError):
    """The run or the service failed."""


class InputError(CommandError):
    """The input was wrong; nothing was started and nothing written."""

    exit_code = WRONG_INPUT


class CommandRefusedError(CommandError):
    """The coordinator refused the request: it has another protocol version, or this key has no permission."""

    exit_code = REFUSED


def exit_code(error: Exception) -> int | None:
    """Return the exit code for `error`; None for an unexpected error, which needs a traceback."""
    from remuda.config.errors import ConfigError
    from remuda.storage.existing_folder import RunFolderError
    from remuda.storage.ownership import FolderOwnedError

    if isinstance(error, CommandError):
        return error.exit_code
    if isinstance(error, ConfigError | RunFolderError | FolderOwnedError):
        return WRONG_INPUT
    return None
