"""Settings of this process: threads of numerical libraries, garbage collection, open files, and a quick end."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import resource
import stat
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import NoReturn, cast

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Environment variables for one thread. More threads do not help small networks, and slow them down when other cores
are busy. A process must be without threads when it is forked."""
FOLLOWS = "REMUDA_THREADS_FOLLOW"
"""Set if Remuda has chosen the number of threads, and may use more for large updates. A number from the user's
environment stays."""
NEW_OBJECTS = 20_000
"""New objects between two collections of cyclic garbage, which is rare. With Python's default of 700, every turn of a
busy loop would have a collection."""
WANTED_OPEN_FILES = 1 << 20
"""Largest useful limit of open files. With a much higher limit child processes would close every
descriptor one by one."""
SWITCH_S = 0.000_5
"""Time for which a second thread may hold the interpreter while a quick loop waits; Python's default is 5 ms."""
EXIT_NOT_FLUSHED = 120
"""Python's own exit code where standard output cannot be written to the end."""
_BUFFERED = {io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom}


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a child process: one thread, unless `environment` names a number."""
    chosen = {} if ONE_THREAD.keys() & environment.keys() else {FOLLOWS: "1"}
    return {**ONE_THREAD, **chosen, **environment}


def bound_threads() -> None:
    """Limit numerical libraries to one thread: several workers share a machine, and small networks do not gain by more.

    Existing environment variables are kept. An imported torch is limited directly.
    """
    os.environ.update(child_environment(os.environ))
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)


def may_choose_threads() -> bool:
    """True if updates may use more threads on free cores; False if the environment names a number."""
    return FOLLOWS in os.environ


@contextmanager
def gc_frozen() -> Generator[None]:
    """Import in the body the modules that the process needs until its end; only for Remuda's own processes.

    Importing torch makes about 400,000 objects. Python's garbage collector visits all of them ten times during the
    import, sometimes while the process works, and again at the end: half a second of a short run in total. So the
    collector is off in the body, and all objects that exist after it are excluded from collection (gc.freeze).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def collecting_rarely() -> Generator[None]:
    """Collect cyclic garbage rarely in the body, and never among existing objects; for the loops of servers."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def quick_switches() -> Generator[None]:
    """Regain the interpreter's lock sooner, for a loop whose messages must not wait for other threads: the loop
    releases the lock at every sent message."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)


def raise_open_files_limit() -> None:
    """Raise the soft limit as far as the operating system allows: the usual 1,024 are used up by a thousand workers, or
    by a hundred runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_files_limit() -> int:
    """The present limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WANTED_OPEN_FILES if soft == resource.RLIM_INFINITY else soft


def open_files() -> int:
    """Return the number of open files and connections; 0 if the system does not report it."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def exit_now(code: int) -> NoReturn:
    """End this process with this exit code, as `sys.exit` in the main thread would, but sooner.

    Waits for threads that are not daemons, calls the functions registered with atexit, and flushes standard output,
    error and all open files. Modules and objects are not freed: a process with torch needs a tenth of a second for
    this, and its memory is given back in any case. Pipes and sockets are not flushed: a daemon thread may be writing to
    an unread pipe, and has it locked.
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
    """Return the exit code of a process that ends with this exception; a text instead of a code is printed to standard
    error."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1
