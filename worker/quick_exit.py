"""The end of a process, without what the operating system does anyway."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn, cast

EXIT_NOT_FLUSHED = 120
"""Python's own exit code where standard output cannot be written to the end."""


def exit_now(code: int) -> NoReturn:
    """End this process with this exit code, as `sys.exit` in the main thread would, but sooner.

    Threads that are not daemons are waited for, functions registered with atexit are called, and standard output and
    error are flushed. What is left out is freeing each module and object: a process that has imported torch needs a
    tenth of a second for it, and its memory is given back in any case.
    """
    # Python calls the same two at its end, and has no public name for either.
    cast("Callable[[], None]", getattr(threading, "_shutdown"))()  # noqa: B009
    cast("Callable[[], None]", getattr(atexit, "_run_exitfuncs"))()  # noqa: B009
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except AttributeError:  # None: a process may have neither
            pass
        except (OSError, ValueError):
            code = code or EXIT_NOT_FLUSHED
    os._exit(code)


def exit_code(end: SystemExit) -> int:
    """The exit code of a process that ends with this exception; a text in its place is printed to standard error."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1
