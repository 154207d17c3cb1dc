"""How many files and connections this process may have open, and how many it has."""

from __future__ import annotations

import os
import resource

WANTED = 1 << 20
"""More is never needed, and with a much higher limit child processes would close that many descriptors one by one."""


def raise_limit() -> None:
    """Raise the soft limit as far as the operating system allows: the usual 1,024 are used up by a thousand workers, or
    by a hundred runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """The present limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WANTED if soft == resource.RLIM_INFINITY else soft


def open_now() -> int:
    """How many are open; 0 if the system does not report it."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0
