"""How a command ends: which failure leads to which exit code."""

from __future__ import annotations

FAILED = 1
WRONG_INPUT = 2
REFUSED = 3


class CommandError(Exception):
    """A command cannot go on. Its text is the one message the user gets: what, where, what to do."""

    exit_code = FAILED


class RunFailedError(CommandError):
    """The run or the service failed."""


class InputError(CommandError):
    """The input was wrong; nothing was started and nothing written."""

    exit_code = WRONG_INPUT


class CommandRefusedError(CommandError):
    """The other side said no: another protocol version, a wrong key."""

    exit_code = REFUSED


def exit_code(error: Exception) -> int | None:
    """The exit code that `error` stands for; None for an error nobody foresaw, which deserves its traceback."""
    from remuda.config.errors import ConfigError
    from remuda.storage.existing_folder import RunFolderError
    from remuda.storage.ownership import FolderOwnedError

    if isinstance(error, CommandError):
        return error.exit_code
    if isinstance(error, ConfigError | RunFolderError | FolderOwnedError):
        return WRONG_INPUT
    return None
