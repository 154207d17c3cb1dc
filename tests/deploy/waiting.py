"""Waiting for what happens in other processes, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import psutil

DEADLINE_S = 30.0
"""For what surely comes; a test that fails waits so long."""


def until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    end_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.02)


def until_gone(processes: Sequence[psutil.Process], deadline_s: float = DEADLINE_S) -> None:
    """A zombie that nobody waits for counts as gone: it runs nothing and holds nothing."""

    def gone(process: psutil.Process) -> bool:
        try:
            return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    until(lambda: all(gone(process) for process in processes), f"the end of {processes}", deadline_s)
