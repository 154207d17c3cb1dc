"""Logs of workers: appended exactly once, since each piece says where it belongs."""

from __future__ import annotations

import os
from pathlib import Path

from remuda.wire.codec import Frame


def append(path: Path, offset: int, data: Frame) -> int:
    """Append those of these bytes, which belong at `offset`, that the file does not have; returns its size then.

    Bytes after a gap are not appended: their sender learns from the size what is lacking. Raises OSError.
    """
    path.parent.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        rest = memoryview(data)[max(0, size - offset) :] if offset <= size else memoryview(b"")
        while rest:
            count = os.pwrite(descriptor, rest, size)
            rest, size = rest[count:], size + count
        return size
    finally:
        os.close(descriptor)
