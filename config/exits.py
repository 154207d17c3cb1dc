"""Turns `sys.exit` in user code (an environment, an algorithm) into an ordinary error."""

from __future__ import annotations

import signal
import sysconfig
import traceback
from types import TracebackType

from remuda.config.errors import Error

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
