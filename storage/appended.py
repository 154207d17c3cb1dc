"""A file of whole records: a partly written record on a full disk is removed before the next record."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class AppendedFile:
    """Appends records to a file, which is made if missing; when `append` returns, the operating system has the record.

    A partial record is removed, at the latest before the next record, so that the file stays readable. If another
    process appends to the same file, its records are safe.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.path = path
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._torn: tuple[int, int] | None = None
        """Begin and end of the partial record to remove."""

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
        """True if `path` still names this very file. ValueError: the file was closed."""
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
            if os.fstat(descriptor).st_size == end:  # nothing was written after it
                os.ftruncate(descriptor, begin)
            self._torn = None
