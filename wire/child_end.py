"""Wait for a child process, and never without end."""

from __future__ import annotations

import subprocess

KILLED_S = 5.0
"""How long a killed process may take to end: it ends only after its current disk operation."""


def end_within(process: subprocess.Popen[bytes], within_s: float, *, killed_s: float = KILLED_S) -> int | None:
    """Wait until a process ends by itself, at most `within_s`; then kill it, and wait at most `killed_s`.

    Returns its exit code, which is negative for a signal; None where even SIGKILL has not ended it yet, as on a network
    disk that hangs."""
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
    try:
        return process.wait(killed_s)
    except subprocess.TimeoutExpired:
        return None
