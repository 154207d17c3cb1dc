"""Exclusive locks on files: held for a short time, with a deadline for waiting; or for the life of a folder's owner.

A living process owns a folder: one coordinator per runs folder, one process per run.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from remuda.config.errors import Error
from remuda.storage.atomic import DISK_IS_FULL, clock_s
from remuda.storage.untrusted import read_start

_KERNEL_LOCKS = Path("/proc/locks")
_POLL_S = 0.005
"""Between two attempts: a lock is usually held for about a millisecond."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Linux has the id of the machine's start here; all containers of the machine read the same."""
STALE_S = 60.0
"""An owner on another machine without a confirmation for this time counts as dead: not every file system carries a lock
from one machine to another. Workers wait much longer for a coordinator."""
_LONGEST_NAME_BYTES = 300


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
    line = _content(path)
    return line if line.isprintable() and line else None


def boot_id() -> str:
    """Return the id of this start of this machine; empty if the system has none."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


class FolderOwnedError(Error):
    """Another process owns the folder; the text names its host and process id."""


class Ownership:
    """The exclusive right to a folder, held by the kernel's lock on a file in the folder, which names the owner."""

    def __init__(self, path: Path) -> None:
        """Take the ownership of the file `path`. Raises FolderOwnedError at once if another process has it."""
        self._path = path
        self._lock = FileLock(path, fallback_to_soft=False, thread_local=False)  # any thread may release it
        self._lost = False
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise FolderOwnedError(f"{path.parent} belongs to {_name(_content(path))}, which is alive") from None
        former, confirmed_s = _content(path), path.stat().st_mtime
        age_s = clock_s(path.parent) - confirmed_s
        # an age far below 0 is of a copied file, or from before the clock was set back: no living owner confirms that
        if former and not _is_of_this_machine(former) and abs(age_s) < STALE_S:
            self._lock.release()
            raise FolderOwnedError(
                f"{path.parent} belongs to {_name(former)}, which confirmed it {age_s:.0f} s ago; if that process is "
                f"dead, try again in {STALE_S - age_s:.0f} s"
            )
        self._mark = f"process {os.getpid()} on {socket.gethostname()}\nboot {boot_id()} at {time.time_ns()}\n"
        self._named = False
        self._name_owner()

    def _name_owner(self) -> None:
        """Write the owner's name into the file. A full disk does not prevent ownership: the lock is held, and `confirm`
        tries again. Raises OSError."""
        try:
            self._path.write_text(self._mark, "utf-8")
            self._named = True
        except OSError as error:
            if error.errno not in DISK_IS_FULL:
                self._lock.release()
                raise

    def confirm(self) -> None:
        """Show other machines a living owner; call every few seconds. Errors are ignored: without the folder, or on a
        full disk, the owner's next write fails. If the file is gone or names another owner, a line on standard error
        reports the fact once, and the file stays unchanged."""
        with contextlib.suppress(OSError):
            if not self._named:
                self._name_owner()
            elif self._is_named():
                os.utime(self._path)
                self._lost = False
            elif not self._lost and self._path.parent.exists():
                self._lost = True
                self._say_lost()

    def _is_named(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return read_start(self._path, most_bytes=len(self._mark) + 1) == self._mark.encode()
        return False

    def _say_lost(self) -> None:
        now = f"names {_name(_content(self._path))} as the owner" if self._path.exists() else "is gone"
        print(
            f"{self._path} {now}: somebody removed the file by which process {os.getpid()} owns {self._path.parent}; "
            "make sure that no other coordinator or run writes there",
            file=sys.stderr,
            flush=True,
        )

    def release(self) -> None:
        """Release the ownership and remove the file, unless it belongs to another owner by now. May be called again."""
        if self._lock.is_locked:
            if not self._named or self._is_named():
                self._path.unlink(missing_ok=True)
            self._lock.release()


def _content(path: Path) -> str:
    try:
        return read_start(path, most_bytes=_LONGEST_NAME_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""


def _name(content: str) -> str:
    """The owner, as named in the first line."""
    first, *others = content.split("\n") or [""]
    return first if first and first.isprintable() and len(others) <= 1 else "another process"


def _is_of_this_machine(content: str) -> bool:
    """True if the owner was a process of this machine: then a free lock proves its death. The boot id is compared
    first, since a restarted container has another host name."""
    first, *others = content.split("\n")
    boot = boot_id()
    if boot and others and others[0].startswith(f"boot {boot} "):
        return True
    return first.split()[-1] == socket.gethostname()
