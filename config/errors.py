"""Errors that Remuda raises on purpose, and `sys.exit` in user code turned into one of them."""

from __future__ import annotations

import signal
import sysconfig
import traceback
from collections.abc import Sequence
from types import TracebackType

_LONGEST_PROBLEM = 500


class Error(Exception):
    """Base of every error that Remuda's Python interface raises on purpose: `except remuda.Error` catches them all."""


class ConfigError(Error):
    """The config is wrong. Its text has a line per problem: where, which key, what is wrong, the nearest valid key."""

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
    """User code tried to end the process; the message says where."""


class NoExit:
    """A context for a user's code: SystemExit and KeyboardInterrupt become UserExitError.

    A KeyboardInterrupt is not changed if Ctrl-C may have raised it, which is so with Python's own signal handler.
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
    """The last line of code that is not Python's own."""
    frames = traceback.extract_tb(trace)
    users = [frame for frame in frames if not frame.filename.startswith(_STDLIB) or "-packages" in frame.filename]
    for frame in (users or frames)[-1:]:
        return f" in {frame.filename}, line {frame.lineno}, in {frame.name}"
    return ""
