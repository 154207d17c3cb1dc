"""How far a file that grows was read, and whether it is still the same file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from remuda.storage.untrusted import open_regular

_TAIL_BYTES = 64


@dataclass(frozen=True)
class Mark:
    """A place in a file. The bytes before it show whether the file was cut and written again since."""

    inode: int = 0
    offset: int = 0
    tail: bytes = b""


@dataclass(frozen=True)
class Look:
    """A file as it is now."""

    mark: Mark
    """Where to read on: the former mark, or the beginning of the file."""
    is_same: bool
    """What was read before the mark is still there."""
    size: int


def look(path: Path, mark: Mark) -> Look:
    """Compare the file with what was read of it. A link is not followed. Raises OSError."""
    with open_regular(path, follow_link=False) as file:
        status = os.fstat(file.fileno())
        same = status.st_ino == mark.inode and status.st_size >= mark.offset
        if same and mark.tail:
            same = os.pread(file.fileno(), len(mark.tail), mark.offset - len(mark.tail)) == mark.tail
    return Look(mark if same else Mark(status.st_ino), same, status.st_size)


def moved(path: Path, mark: Mark, offset: int) -> Mark:
    """The mark at a later place of the same file. Raises OSError."""
    with open_regular(path, follow_link=False) as file:
        length = min(_TAIL_BYTES, offset)
        return Mark(mark.inode, offset, os.pread(file.fileno(), length, offset - length))
