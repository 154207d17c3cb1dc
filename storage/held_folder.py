"""Temporary folders locked by their process: folders of killed processes can be removed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from remuda.storage.atomic import clock_s

_YOUNG_S = 60.0
"""A younger folder may not be locked yet."""


class HeldFolder:
    """A new private folder in the temporary directory, until its removal or the end of the process."""

    def __init__(self, prefix: str, name: str) -> None:
        """Make `<prefix><name>`, in place of a former process's folder of this name, and remove all unlocked folders
        with this prefix. Raises FileExistsError if another user has taken the name, and OSError."""
        place = Path(tempfile.gettempdir())
        _sweep(place, prefix)
        self.path = place / f"{prefix}{name}"
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(mode=0o700)
        self._mark = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._mark, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove the folder with its content, unless another process has taken the name. May be called again."""
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
    now_s = clock_s(place)
    for folder in place.glob(f"{prefix}*"):
        try:
            if folder.stat().st_uid != os.geteuid() or now_s - folder.stat().st_mtime < _YOUNG_S:
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
