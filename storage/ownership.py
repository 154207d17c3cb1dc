"""Ownership of a folder by a living process: one coordinator per runs folder, one process per run."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from pathlib import Path

from filelock import FileLock, Timeout

from remuda.config.errors import Error
from remuda.storage.atomic import DISK_IS_FULL, clock_s
from remuda.storage.untrusted import read_start

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Linux has the id of the machine's start here; all containers of the machine read the same."""
STALE_S = 60.0
"""An owner on another machine without a confirmation for this time counts as dead: not every file system carries a lock
from one machine to another. Workers wait much longer for a coordinator."""
_LONGEST_NAME_BYTES = 300


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
