"""How many files and connections this process may have open, and how many it has."""

from __future__ import annotations

import os
import resource

WANTED = 1 << 20
"""More is never needed, and a limit that is far higher makes children close so many one by one."""


def raise_limit() -> None:
    """Allow as many as the operating system lets this process have: the usual soft limit of 1,024 is reached by a
    thousand workers, or by a hundred runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit() -> int:
    """How many there may be."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WANTED if soft == resource.RLIM_INFINITY else soft


def open_now() -> int:
    """How many there are; 0 where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0
