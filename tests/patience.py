"""How long tests wait for what surely comes.

No result rests on these limits: on a slow or busy machine a wait takes longer, and only one that would never end is
stopped. pytest's own limit for a whole test (`timeout` in pyproject.toml) is longer, so that the wait says what it was
for.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from remuda.worker.shutdown_guard import SAME_REQUEST_S

HANG_S = 180.0
"""After so long nothing will come any more."""


def until(condition: Callable[[], object], what: str) -> None:
    """Look again and again until `condition()` is true; the test fails, saying what it waited for, if it never is."""
    end_s = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end_s, f"waited {HANG_S:g} s for: {what}"
        time.sleep(0.02)


def until_ended(process: subprocess.Popen[bytes], number: signal.Signals) -> int:
    """Send a signal again and again until the process has ended; returns its exit code.

    Signals that are nearer together than SAME_REQUEST_S are one request, and a process that gets no core gets the
    first one late: so a second may not be enough.
    """
    end_s = time.monotonic() + HANG_S
    while process.poll() is None:
        assert time.monotonic() < end_s, f"{number.name} did not end {process.args!r} within {HANG_S:g} s"
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.2 * SAME_REQUEST_S)
    return process.returncode


def until_gone(processes: Sequence[psutil.Process]) -> None:
    """Wait for the end of processes. A zombie counts as gone: it runs nothing and holds nothing."""

    def gone(process: psutil.Process) -> bool:
        try:
            return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    until(lambda: all(gone(process) for process in processes), f"the end of {processes}")
