"""Files and folders that only their owner may open: reading them refuses any that others could have read or changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from shlex import quote

from remuda.storage.untrusted import open_regular


class NotPrivateError(Exception):
    """Other users can open the file or folder, or it belongs to one of them; the text says which, and what to do."""


def read_private(path: Path, *, most_bytes: int) -> bytes:
    """The first `most_bytes` bytes of a file that only this user may open.

    The open file is checked, not its name. Raises NotPrivateError, FileNotFoundError and other OSErrors."""
    with open_regular(path) as file:
        _check(path, os.fstat(file.fileno()), "600")
        return file.read(most_bytes) or b""


def check_private_folder(path: Path) -> None:
    """Raise NotPrivateError if other users can look into this folder or change it, FileNotFoundError if it is missing,
    and NotADirectoryError if it is no folder."""
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
