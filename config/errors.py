"""Errors raised on purpose, and the conversion of `sys.exit` in user code into such an error."""

from __future__ import annotations

import signal
import sysconfig
import traceback
from collections.abc import Sequence
from types import TracebackType

_LONGEST_PROBLEM = 500


class Error(Exception):
    """Base of every error raised on purpose by Remuda's Python interface: `except remuda.Error` catches all of them."""


class ConfigError(Error):
    """The config is wrong. The text has a line per problem: place, key, problem, nearest valid key."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(_one_line(problem) for problem in problems)
        super().__init__("\n".join(self.problems))


def _one_line(problem: str) -> str:
    """Fit for a terminal: a config may hold control characters and endless words."""
    shown = shortened(problem, _LONGEST_PROBLEM)
    return "".join(character if character.isprintable() else "�" for character in shown)


def shortened(text: str, longest: int) -> str:
    """`text` in at most `longest` characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


_STDLIB = sysconfig.get_path("stdlib")


class UserExitError(Error, RuntimeError):
    """User code tried to end the process; the message names the place."""


class NoExit:
    """Context for user code: SystemExit and KeyboardInterrupt become UserExitError.

    Leaves KeyboardInterrupt unchanged if Python's own signal handler is active, because Ctrl-C may be the cause.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, SystemExit | KeyboardInterrupt):
            return
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            return
        raise UserExitError(
            f"{error!r} was raised{_place(trace)}: user code must not end the process that it runs in"
        ) from error


def _place(trace: TracebackType | None) -> str:
    """Return the last line of code outside Python's own libraries."""
    frames = traceback.extract_tb(trace)
    users = [frame for frame in frames if not frame.filename.startswith(_STDLIB) or "-packages" in frame.filename]
    for frame in (users or frames)[-1:]:
        return f" in {frame.filename}, line {frame.lineno}, in {frame.name}"
    return ""
