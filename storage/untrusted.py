"""Opens files from untrusted writers: never waits for a pipe, and bounds every size."""

from __future__ import annotations

import errno
import json
import os
import stat
from io import FileIO
from pathlib import Path
from shlex import quote


class NotOrdinaryError(OSError):
    """The path is a pipe or a device, or the file is larger than any honest file."""


def open_regular(path: Path, *, follow_link: bool = True) -> FileIO:
    """Open a regular file for reading, without a buffer. Raises NotOrdinaryError for anything else, at once: opening a
    pipe would block until a writer comes. Raises other OSErrors, also for a link unless `follow_link`."""
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
    """Return the content of a regular file. Raises NotOrdinaryError beyond `most_bytes`, and other OSErrors, also for a
    link unless `follow_link`."""
    with open_regular(path, follow_link=follow_link) as file:
        if os.fstat(file.fileno()).st_size <= most_bytes:
            content = file.readall() or b""  # takes as much as there is, also of a file that grows meanwhile
            if len(content) <= most_bytes:
                return content
    raise NotOrdinaryError(errno.EFBIG, f"it is larger than {most_bytes} bytes", str(path))


def read_start(path: Path, *, most_bytes: int) -> bytes:
    """Return the first `most_bytes` bytes of a regular file. Raises NotOrdinaryError and other OSErrors."""
    with open_regular(path) as file:
        return file.read(most_bytes) or b""


def json_of(content: bytes | str) -> object:
    """Return the value of a JSON text. Raises ValueError for any other text, and for too deep nesting."""
    try:
        value: object = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return value


class NotPrivateError(Exception):
    """The file or folder is open to other users, or belongs to another user; the text has the path and the remedy."""


def read_private(path: Path, *, most_bytes: int) -> bytes:
    """Return the first `most_bytes` bytes of a private file of this user.

    Checks the open file, not the name. Raises NotPrivateError, FileNotFoundError and other OSErrors.
    """
    with open_regular(path) as file:
        _check(path, os.fstat(file.fileno()), "600")
        return file.read(most_bytes) or b""


def check_private_folder(path: Path) -> None:
    """Raise NotPrivateError for a folder open to other users, FileNotFoundError for a missing folder, and
    NotADirectoryError for a file."""
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(20, "Not a directory", str(path))
    _check(path, status, "700")


def _check(path: Path, status: os.stat_result, wanted: str) -> None:
    if status.st_uid != os.geteuid():
        raise NotPrivateError(
            f"{path} belongs to another user (user id {status.st_uid}, yours is {os.geteuid()}), who could read and "
            "change it: use a file or folder of your own"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise NotPrivateError(
            f"{path} has mode {mode:04o}, so other users can open it: run `chmod {wanted} {quote(str(path))}`"
        )
