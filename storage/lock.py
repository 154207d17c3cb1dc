"""Who may write: an exclusive lock on a file, held for a moment, waited for with a deadline."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

_POLL_S = 0.005
"""Holders hold for about a millisecond, so the wait between two attempts is of that order."""


class LockTimeout(Exception):  # noqa: N818  (it says what happened, as queue.Empty does)
    """The lock was not free before the deadline."""

    def __init__(self, path: Path, deadline_s: float, holder: str | None) -> None:
        by = f"; it was last taken by {holder} (host:pid)" if holder else ""
        super().__init__(f"{path} was still locked after {deadline_s:g} s{by}")
        self.path = path
        self.holder = holder
        """`host:pid` of whoever took the lock last; None where it left no name."""


@contextmanager
def holding(path: Path, *, deadline_s: float) -> Generator[None, None, None]:
    """Hold the exclusive lock on the file `path` (made if missing, never removed).

    Raises LockTimeout when another holder keeps it for longer than `deadline_s`. The kernel frees the lock of a
    process that dies. A file system without flock is an OSError, never a marker file that a dead holder leaves.
    """
    lock = FileLock(path, fallback_to_soft=False, poll_interval=_POLL_S, on_acquired=_sign)
    try:
        lock.acquire(timeout=deadline_s)
    except Timeout:
        raise LockTimeout(path, deadline_s, _read_holder(path)) from None
    try:
        yield
    finally:
        lock.release()


def _sign(descriptor: int) -> None:
    name = f"{socket.gethostname()}:{os.getpid()}\n".encode()
    try:
        os.pwrite(descriptor, name, 0)
        os.ftruncate(descriptor, len(name))
    except OSError:
        return  # the name is a courtesy to whoever waits: a full disk must not cost the lock


def _read_holder(path: Path) -> str | None:
    try:
        line = path.read_bytes()[:300].decode(errors="replace").strip()
    except OSError:
        return None
    return line if line.isprintable() and line else None
