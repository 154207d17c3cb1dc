"""A file that grows by whole records: what a full disk takes of one in part is taken back before the next."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class AppendedFile:
    """Appends records to a file, made if missing, each in the operating system's hands when `append` returns.

    A record that the disk takes only in part is cut off again, at the latest before the next one, so that what follows
    stays readable. Where somebody else appends to the same file, no record of theirs is lost by that.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.path = path
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._torn: tuple[int, int] | None = None
        """Where the part of a record begins and ends that is to be cut off."""

    def append(self, record: bytes) -> None:
        """Append a record, or nothing: then OSError is raised. ValueError: the file was closed."""
        if self._descriptor is None:
            raise ValueError(f"{self.path} is closed")
        self._cut_torn(self._descriptor)
        begin = os.fstat(self._descriptor).st_size
        rest = memoryview(record)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            written = len(record) - len(rest)
            if written:
                self._torn = begin, begin + written
                with contextlib.suppress(OSError):  # tried again before the next record
                    self._cut_torn(self._descriptor)
            raise

    @property
    def in_place(self) -> bool:
        """Whether `path` still names this very file. ValueError: the file was closed."""
        if self._descriptor is None:
            raise ValueError(f"{self.path} is closed")
        try:
            named, own = os.stat(self.path), os.fstat(self._descriptor)
        except OSError:
            return False
        return (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)

    def rename(self, path: Path) -> None:
        """Give the file another name. Raises OSError."""
        os.replace(self.path, path)
        self.path = path

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def _cut_torn(self, descriptor: int) -> None:
        if self._torn is not None:
            begin, end = self._torn
            if os.fstat(descriptor).st_size == end:  # nobody has written behind it
                os.ftruncate(descriptor, begin)
            self._torn = None
