"""Temporary folders that are held by the process that works in them, so that those of killed ones can be removed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_YOUNG_S = 60.0
"""A folder that is younger may not be held yet."""


class HeldFolder:
    """A new folder in the temporary directory that others cannot open, until it is removed or its process ends."""

    def __init__(self, prefix: str, name: str) -> None:
        """Make `<prefix><name>`, in place of what a former process has left under this name, and remove all folders
        with this prefix that nobody holds any more. Raises FileExistsError where another user has taken its name, and
        OSError."""
        place = Path(tempfile.gettempdir())
        _sweep(place, prefix)
        self.path = place / f"{prefix}{name}"
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(mode=0o700)
        self._mark = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._mark, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove it with all that is in it, unless another process has taken its place. May be called again."""
        if self._mark >= 0:
            if self._is_there():
                shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._mark)
            self._mark = -1

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._mark), os.lstat(self.path))
        except OSError:
            return False


def _sweep(place: Path, prefix: str) -> None:
    for folder in place.glob(f"{prefix}*"):
        try:
            if folder.stat().st_uid != os.geteuid() or time.time() - folder.stat().st_mtime < _YOUNG_S:
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # its process lives
        finally:
            os.close(descriptor)
