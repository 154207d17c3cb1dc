"""The end of a process, without what the operating system does anyway."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import stat
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn, cast

EXIT_NOT_FLUSHED = 120
"""Python's own exit code where standard output cannot be written to the end."""
_BUFFERED = {io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom}


def exit_now(code: int) -> NoReturn:
    """End this process with this exit code, as `sys.exit` in the main thread would, but sooner.

    Threads that are not daemons are waited for, functions registered with atexit are called, and standard output, error
    and all files that are still open are flushed. What is left out is freeing each module and object: a process that
    has imported torch needs a tenth of a second for it, and its memory is given back in any case. Pipes and sockets are
    not flushed: a daemon thread may be writing to one that nobody reads, and has it locked.
    """
    # Python calls the same two at its end, and has no public name for either.
    for name, module in (("_shutdown", threading), ("_run_exitfuncs", atexit)):
        try:
            cast("Callable[[], None]", getattr(module, name))()
        except KeyboardInterrupt:  # as Python does: tell it, and go on with the end
            traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except AttributeError:  # None: a process may have neither
            pass
        except (OSError, ValueError):
            code = code or EXIT_NOT_FLUSHED
    _flush_files()
    os._exit(code)


def _flush_files() -> None:
    gc.unfreeze()  # objects that were frozen are not listed
    for found in gc.get_objects():
        if type(found) in _BUFFERED:
            file = cast("io.TextIOWrapper | io.BufferedWriter | io.BufferedRandom", found)
            with contextlib.suppress(OSError, ValueError):  # it is closed, its disk is full, or it is no file
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    file.flush()


def exit_code(end: SystemExit) -> int:
    """The exit code of a process that ends with this exception; a text in its place is printed to standard error."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1
