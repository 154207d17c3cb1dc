"""Who owns a folder for as long as its process lives: one coordinator per runs folder, one process per run."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

from filelock import FileLock, Timeout

STALE_S = 60.0
"""An owner on another host that has not confirmed its ownership for so long is taken for dead: not every file system
carries a lock from one host to the other."""
_LONGEST_NAME_BYTES = 300


class FolderOwnedError(Exception):
    """Another process owns the folder; the text names its host and process id."""


class Ownership:
    """The exclusive right to a folder, held by the kernel's lock on a file in it, which names the owner."""

    def __init__(self, path: Path) -> None:
        """Take the right that the file `path` stands for. Raises FolderOwnedError at once where another has it."""
        self._path = path
        self._lock = FileLock(path, fallback_to_soft=False)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise FolderOwnedError(f"{path.parent} belongs to {_owner(path)}, which is alive") from None
        former, age_s = _owner(path), time.time() - path.stat().st_mtime
        if former and former.split()[-1] != socket.gethostname() and age_s < STALE_S:
            self._lock.release()
            raise FolderOwnedError(
                f"{path.parent} belongs to {former}, which confirmed it {age_s:.0f} s ago; if that process is dead, "
                f"try again in {STALE_S - age_s:.0f} s"
            )
        path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", "utf-8")

    def confirm(self) -> None:
        """Show other hosts that the owner lives; to be called every few seconds. Where that cannot be, since the folder
        was taken away or its disk refuses, the owner will hear of it by what it writes there."""
        with contextlib.suppress(OSError):
            os.utime(self._path)

    def release(self) -> None:
        """Give the right up and remove the file. May be called again."""
        if self._lock.is_locked:
            self._path.unlink(missing_ok=True)
            self._lock.release()


def _owner(path: Path) -> str:
    try:
        text = path.read_bytes()[:_LONGEST_NAME_BYTES].decode(errors="replace").strip()
    except OSError:
        return "another process"
    return text if text.isprintable() else "another process"
