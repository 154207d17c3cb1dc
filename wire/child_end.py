"""Wait for a child process, and never without end."""

from __future__ import annotations

import os
import select
import subprocess
from contextlib import suppress

KILLED_S = 5.0
"""Seconds for the end of a killed process, which first finishes the current disk operation."""


def ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    """Wait at most `within_s` seconds for the end of a child process; returns True if it has ended.

    `Popen.wait` with a timeout polls in pauses of up to 50 ms. On Linux, this function does not pause. Other threads
    may wait for the same process.
    """
    if process.poll() is not None:
        return True
    if within_s <= 0:
        return False
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # another system, or one without descriptors for processes
        with suppress(subprocess.TimeoutExpired):
            process.wait(within_s)
        return process.returncode is not None
    try:
        watched = select.poll()
        watched.register(descriptor, select.POLLIN)
        if not watched.poll(1_000 * within_s):
            return False
    finally:
        os.close(descriptor)
    process.wait()  # it has ended: this takes its exit code, or another thread is just taking it
    return True


def end_within(process: subprocess.Popen[bytes], within_s: float, *, killed_s: float = KILLED_S) -> int | None:
    """Wait until a process ends by itself, at most `within_s`; then kill it, and wait at most `killed_s`.

    Returns the exit code, negative for a signal; None if even SIGKILL has not ended the process yet, as on a hanging
    network disk.
    """
    if not ended(process, within_s):
        process.kill()
        ended(process, killed_s)
    return process.returncode
