"""A random file to find out if two processes on different hosts see the same folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from remuda.storage.atomic import clock_s, write_text
from remuda.storage.lock import boot_id

_PREFIX = ".seen_"
_MOST_BYTES = 4_096
_OLD_S = 30 * 86_400.0
"""Age in seconds of a probable leftover: a process removes its own token at an orderly end."""


class FolderToken:
    """A token for a folder, with random content: different folders have different tokens."""

    def __init__(self, folder: Path, id: str) -> None:
        """Writes nothing. `id` identifies the process, and is part of the file's name."""
        self._folder = folder
        self._path = _path(folder, id)
        self._content = f"{secrets.token_hex(32)}\nprocess {os.getpid()} boot {boot_id()}\n"
        self.digest = _digest(self._content.encode())
        """64 hexadecimal digits for the other end."""

    def write(self) -> None:
        """Write the file if missing; makes the folder. For any thread. Raises OSError."""
        if not self._path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            _sweep(self._folder)
            write_text(self._path, self._content, durable=False)

    def remove(self) -> None:
        """Remove the file. May be called again."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def has_token(folder: Path, id: str, digest: str) -> bool:
    """True if this folder has the token of this process id, and is writable."""
    try:
        descriptor = os.open(_path(folder, id), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        content = os.read(descriptor, _MOST_BYTES)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return _digest(content) == digest and os.access(folder, os.W_OK | os.X_OK)


def _path(folder: Path, id: str) -> Path:
    return folder / f"{_PREFIX}{id}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sweep(folder: Path) -> None:
    """Remove old files of killed processes."""
    now_s = clock_s(folder)
    for path in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = path.read_text("ascii", "replace").split()
            pid, boot = int(words[2]), words[4]
            old = now_s - path.stat().st_mtime > _OLD_S
            if old and (boot != boot_id() or not _lives(pid)):
                path.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
