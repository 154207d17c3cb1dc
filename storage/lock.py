"""An exclusive lock on a file, held for a short time, with a deadline for waiting."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from remuda.storage.untrusted import read_start

_KERNEL_LOCKS = Path("/proc/locks")
_POLL_S = 0.005
"""Between two attempts: a lock is usually held for about a millisecond."""


class LockTimeout(Exception):  # noqa: N818  (it says what happened, as queue.Empty does)
    """The lock was not free before the deadline."""

    def __init__(self, path: Path, deadline_s: float, holder: str | None) -> None:
        by = f"; it is held by {holder} (host:pid)" if holder else ""
        super().__init__(f"{path} was still locked after {deadline_s:g} s{by}")
        self.path = path
        self.holder = holder
        """`host:pid` of the present or last holder; None if unknown."""


@contextmanager
def holding(path: Path, *, deadline_s: float) -> Generator[None, None, None]:
    """Hold the exclusive lock on the file `path` (made if missing, never removed).

    Raises LockTimeout if another process holds it for longer than `deadline_s`. The kernel frees the lock of a process
    that dies. A file system without flock raises OSError; marker files are no fallback, since a dead process would
    leave them behind.
    """
    lock = FileLock(path, fallback_to_soft=False, poll_interval=_POLL_S, on_acquired=_sign)
    try:
        lock.acquire(timeout=deadline_s)
    except Timeout:
        raise LockTimeout(path, deadline_s, _of_this_host(path) or _read_holder(path)) from None
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
        return  # the name is only information for others: a full disk must not prevent the lock


def _of_this_host(path: Path) -> str | None:
    """Return the holder from the kernel (Linux): a foreign program locks the file without writing a name."""
    try:
        status = os.stat(path)
        locks = _KERNEL_LOCKS.read_text().splitlines()
    except OSError:
        return None
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for fields in map(str.split, locks):  # 1: FLOCK ADVISORY WRITE 1234 fe:00:56 0 EOF
        if fields[1] == "FLOCK" and fields[5] == file and fields[4].isdecimal() and fields[4] != "0":
            return f"{socket.gethostname()}:{fields[4]}"
    return None


def _read_holder(path: Path) -> str | None:
    try:
        line = read_start(path, most_bytes=300).decode(errors="replace").strip()
    except OSError:
        return None
    return line if line.isprintable() and line else None
