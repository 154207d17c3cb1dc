"""Opening files that somebody else may have written or put there: a pipe is not waited for, and no size is believed."""

from __future__ import annotations

import errno
import json
import os
import stat
from io import FileIO
from pathlib import Path


class NotOrdinaryError(OSError):
    """The path is a pipe or a device, or the file is larger than any honest one."""


def open_regular(path: Path, *, follow_link: bool = True) -> FileIO:
    """Open a regular file for reading, without a buffer. Raises NotOrdinaryError for anything else, at once: opening a
    pipe would last until somebody writes to it. Raises other OSErrors, and one for a link unless `follow_link`."""
    no_link = 0 if follow_link else os.O_NOFOLLOW
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | no_link)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return FileIO(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise NotOrdinaryError(errno.EINVAL, "it is not a regular file", str(path))


def read_bounded(path: Path, *, most_bytes: int, follow_link: bool = True) -> bytes:
    """The content of a regular file. Raises NotOrdinaryError if it has more than `most_bytes`, and other OSErrors, one
    for a link unless `follow_link`."""
    with open_regular(path, follow_link=follow_link) as file:
        if os.fstat(file.fileno()).st_size <= most_bytes:
            content = file.readall() or b""  # takes as much as there is, also of a file that grows meanwhile
            if len(content) <= most_bytes:
                return content
    raise NotOrdinaryError(errno.EFBIG, f"it is larger than {most_bytes} bytes", str(path))


def read_start(path: Path, *, most_bytes: int) -> bytes:
    """The first `most_bytes` bytes of a regular file. Raises NotOrdinaryError and other OSErrors."""
    with open_regular(path) as file:
        return file.read(most_bytes) or b""


def json_of(content: bytes | str) -> object:
    """The value of a JSON text. Raises ValueError for any other text, one that is nested too deep included."""
    try:
        value: object = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return value
