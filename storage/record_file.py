"""Files of whole records: records are appended whole, and read up to a torn or damaged record.

A partly written record on a full disk is removed before the next record. Records are lines, or MessagePack.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

# msgpack has neither stubs nor a py.typed marker.
import msgpack as untyped  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

from remuda.storage.untrusted import open_regular

LONGEST_BYTES = 1 << 20
"""Longest text in a record, and most bytes of read-ahead: bounds the memory for a damaged length."""
_BLOCK_BYTES = 64 << 10
_MOST_ITEMS = 4_096
"""Most items of one list or map in a record."""


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


class _Unpacker(Protocol):
    """The used part of msgpack.Unpacker."""

    def feed(self, data: bytes) -> None: ...

    def skip(self) -> None: ...

    def tell(self) -> int: ...

    def __iter__(self) -> Iterator[object]: ...


_msgpack = cast("Any", untyped)
_pack: Callable[[object], bytes] = _msgpack.packb
_UnpackError: type[Exception] = _msgpack.UnpackException


def _unpacker() -> _Unpacker:
    return cast(
        "_Unpacker",
        _msgpack.Unpacker(
            max_buffer_size=LONGEST_BYTES, max_array_len=_MOST_ITEMS, max_map_len=_MOST_ITEMS, strict_map_key=True
        ),
    )


@dataclass(frozen=True)
class Record:
    """One record, and its bytes in the file: from `begin` up to `end`."""

    value: object
    begin: int
    end: int


def packed(value: object) -> bytes:
    """Return the bytes of a record: maps with text keys, lists, text, numbers, booleans, None."""
    return _pack(value)


def ends_of_records(data: bytes, most: int | None = None) -> list[int]:
    """Return the ends of the whole records at the beginning of `data`, up to the first torn or invalid record; at most
    `most`. Makes no objects of the records."""
    unpacker, ends = _unpacker(), list[int]()
    try:
        unpacker.feed(data)
        while most is None or len(ends) < most:
            unpacker.skip()
            ends.append(unpacker.tell())
    except (_UnpackError, ValueError, TypeError, OverflowError):
        pass
    return ends


def read_records(path: Path) -> Iterator[Record]:
    """Yield the whole records, also while another process appends. Raises OSError.

    Ends at the first torn or invalid record. The memory use does not grow with the file.
    """
    unpacker, begin = _unpacker(), 0
    with open_regular(path) as file:
        while block := file.read(_BLOCK_BYTES):
            try:
                unpacker.feed(block)
                for value in unpacker:
                    end = unpacker.tell()
                    yield Record(value, begin, end)
                    begin = end
            except (_UnpackError, ValueError, TypeError, OverflowError):
                return
