"""Files for workers, opened once, so that a replaced file is sent unchanged."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from remuda.policy.files.policy_file import PolicyFileError, open_newer
from remuda.wire.codec import Frame
from remuda.wire.messages import shortened
from remuda.wire.streams import (
    MOST_FILE_BYTES,
    PIECE_BYTES,
    WINDOW_BYTES,
    FromServer,
    Get,
    NothingNewer,
    Opened,
    Piece,
    Refused,
)

AT_ONCE = 64
"""Most files sent at the same time; with WINDOW_BYTES each, this bounds the server's memory. Other requests are
repeated."""
FORGET_AFTER_S = 20.0
"""A file without a taken byte for this time is closed; its worker asks again."""
TOO_MANY = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""This process, or its machine, has too many open files for a moment: no fault of the file."""
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
Key = tuple[bytes, int]


class Say(Protocol):
    """Sends a message; returns False if this is not possible now."""

    def __call__(self, peer: bytes, message: FromServer, *data: Frame) -> bool: ...


@dataclass
class _Download:
    peer: bytes
    transfer: int
    descriptor: int
    size: int
    sent: int
    taken: int
    touched_s: float


class Downloads:
    """All outgoing files for workers. Callers pass the time, and send its messages."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._all: dict[Key, _Download] = {}

    def __len__(self) -> int:
        return len(self._all)

    def get(self, peer: bytes, get: Get, path: Path, now_s: float) -> None:
        """Handle a worker's request for a file, or the rest of a file."""
        self.cancel(peer, get.transfer)
        if len(self._all) >= AT_ONCE:
            self._say(peer, Refused(get.transfer, "too many files are on their way", again=True))
            return
        try:
            descriptor = _open(get, path)
        except PolicyFileError as error:
            missing = isinstance(error.__cause__, FileNotFoundError)
            self._refuse(peer, get, str(error), missing=missing)
            return
        except OSError as error:
            if error.errno in TOO_MANY:
                self._say(peer, Refused(get.transfer, f"{get.file}: {error.strerror}", again=True))
            else:
                self._refuse(peer, get, f"{get.file}: {error.strerror}", missing=error.errno in _MISSING)
            return
        if descriptor is None:
            self._say(peer, NothingNewer(get.transfer))
            return
        size = os.fstat(descriptor).st_size
        if size > MOST_FILE_BYTES or get.offset > size:
            os.close(descriptor)
            self._refuse(peer, get, f"{get.file} has {size} bytes", missing=False)
            return
        self._say(peer, Opened(get.transfer, size))
        if get.offset == size:  # all of it is there, so nothing of it will be taken
            os.close(descriptor)
            return
        download = _Download(peer, get.transfer, descriptor, size, get.offset, get.offset, now_s)
        self._all[peer, get.transfer] = download
        self._send(download)

    def took(self, peer: bytes, transfer: int, below: int, now_s: float) -> None:
        """Note that a worker has all bytes of a file below `below`."""
        download = self._all.get((peer, transfer))
        if download is None:
            return
        download.touched_s = now_s
        download.taken = min(max(download.taken, below), download.sent)
        if download.taken == download.size:
            self.cancel(peer, transfer)
        else:
            self._send(download)

    def cancel(self, peer: bytes, transfer: int) -> None:
        """A file is not wanted any more, or has arrived."""
        download = self._all.pop((peer, transfer), None)
        if download is not None:
            os.close(download.descriptor)

    def tick(self, now_s: float) -> None:
        """Continue unsent files, and give up files that workers do not take; called from time to time."""
        for download in list(self._all.values()):
            if now_s - download.touched_s > FORGET_AFTER_S:
                self.cancel(download.peer, download.transfer)
            else:
                self._send(download)

    def close(self) -> None:
        """Close all files."""
        for peer, transfer in list(self._all):
            self.cancel(peer, transfer)

    def _send(self, download: _Download) -> None:
        """Send as much as the window permits."""
        while download.sent < min(download.size, download.taken + WINDOW_BYTES):
            try:
                data = os.pread(download.descriptor, PIECE_BYTES, download.sent)
            except OSError:
                data = b""
            if not data:  # it became shorter, or its disk fails: the worker asks again, and is told
                self.cancel(download.peer, download.transfer)
                self._say(download.peer, Refused(download.transfer, "the file cannot be read", again=True))
                return
            if not self._say(download.peer, Piece(download.transfer, download.sent), data):
                return
            download.sent += len(data)

    def _refuse(self, peer: bytes, get: Get, reason: str, *, missing: bool) -> None:
        self._say(peer, Refused(get.transfer, shortened(reason), again=False, missing=missing))


def _open(get: Get, path: Path) -> int | None:
    """Return a descriptor of the file; None for a policy that is not newer. Raises PolicyFileError, OSError."""
    if get.kind in ("policy", "target"):
        file = open_newer(path, newer_than=get.newer_than)
        if file is None:
            return None
        with file:
            return os.dup(file.fileno())
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
