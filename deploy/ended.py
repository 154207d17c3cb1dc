"""Whether a child process has ended, noticed at once."""

from __future__ import annotations

import os
import select
import subprocess


def ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    """Wait at most `within_s` seconds for the end of a child process; returns whether it has ended.

    `Popen.wait` with a timeout looks for it again and again, in pauses of up to 50 ms. Where the system can tell
    (Linux), this does not pause.
    """
    if process.poll() is not None:
        return True
    if within_s <= 0:
        return False
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # another system, or one without descriptors for processes
        return _waited(process, within_s)
    try:
        watched = select.poll()
        watched.register(descriptor, select.POLLIN)
        watched.poll(1_000 * within_s)
    finally:
        os.close(descriptor)
    return process.poll() is not None


def _waited(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True
