"""A file of MessagePack records, one after another; reading ends at a torn or damaged record."""

from __future__ import annotations

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
