"""Files from workers: written under a temporary name, checked, and renamed when whole."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.buffer.chunk import ChunkError
from remuda.storage.atomic import DISK_IS_FULL, write_all
from remuda.wire.codec import Frame
from remuda.wire.messages import shortened
from remuda.wire.streams import Begin, FromServer, Piece, Put, Refused, Stored, Written
from remuda.worker.stores.server.downloads import TOO_MANY
from remuda.worker.stores.server.granted_paths import OVER, check_arrived, is_open

AT_ONCE = 32
"""Most long files received at the same time; others wait. With WINDOW_BYTES each, this bounds the server's memory.
Short files come whole, two at a time from each collector."""
REST_AFTER_S = 5.0
"""A file without new bytes for this time makes room for another; its received bytes are kept."""
FORGET_AFTER_S = 150.0
"""A file without new bytes for this time is given up. A network may be away for a minute and more."""
WAITING_AT_MOST = 4_096
"""Files that wait or rest."""

Say = Callable[[bytes, FromServer], None]
Key = tuple[bytes, int]
"""A worker's connection, and its number of the transfer."""


@dataclass
class _Upload:
    put: Put
    path: Path
    peer: bytes
    touched_s: float
    descriptor: int = -1
    temporary: Path = Path()
    written: int = 0
    begun: bool = False
    named: bool = False
    """True once the whole file has its name."""

    @property
    def key(self) -> Key:
        return self.peer, self.put.transfer


class Uploads:
    """All incoming files of workers. Callers pass the time, and send its messages."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._of_path: dict[Path, _Upload] = {}
        self._of_key: dict[Key, _Upload] = {}
        self._waiting: deque[_Upload] = deque()
        self._active: set[Path] = set()

    def __len__(self) -> int:
        return len(self._of_path)

    def put(self, peer: bytes, put: Put, data: Sequence[Frame], path: Path, now_s: float) -> None:
        """Handle a whole file in these frames, a request to send a file, or the rest of a file after a break."""
        if data:
            self._store(peer, put, data, path, now_s)
            return
        known = self._of_path.get(path)
        if known is not None and known.put.size_bytes == put.size_bytes:
            self._of_key.pop(known.key, None)
            known.put, known.peer, known.touched_s = put, peer, now_s
            self._of_key[known.key] = known
            if known.begun:
                self._active.add(path)
                self._say(peer, Begin(put.transfer, known.written))
            return
        if known is not None:
            self._drop(known)
        if _is_there(put, path):  # stored before, and its sender has not been told
            self._say(peer, Stored(put.transfer))
            return
        if len(self._of_path) >= WAITING_AT_MOST:
            self._say(peer, Refused(put.transfer, "too many files are on their way", again=True))
            return
        upload = _Upload(put, path, peer, now_s)
        self._of_path[path] = self._of_key[upload.key] = upload
        self._waiting.append(upload)
        self._begin_next(now_s)

    def piece(self, peer: bytes, piece: Piece, data: Frame, now_s: float) -> None:
        """Write the bytes of a file. Known bytes, and bytes after a gap, are skipped."""
        upload = self._of_key.get((peer, piece.transfer))
        if upload is None or not upload.begun:
            self._say(peer, Refused(piece.transfer, "the server does not know this transfer", again=True))
            return
        upload.touched_s = now_s
        self._active.add(upload.path)
        if piece.offset == upload.written and piece.offset + len(data) <= upload.put.size_bytes:
            try:
                _write(upload.descriptor, [data], upload.written)
            except OSError as error:
                self._refuse(upload, error, now_s)
                return
            upload.written += len(data)
        if upload.written == upload.put.size_bytes:
            self._complete(upload, now_s)
        else:
            self._say(peer, Written(piece.transfer, upload.written))

    def cancel(self, peer: bytes, transfer: int, now_s: float) -> None:
        """A worker does not want to bring the file any more."""
        upload = self._of_key.get((peer, transfer))
        if upload is not None:
            self._drop(upload)
            self._begin_next(now_s)

    def tick(self, now_s: float) -> None:
        """Give the place of a silent file to another, and reassure waiting workers; called from time to time."""
        for upload in list(self._of_path.values()):
            silent_s = now_s - upload.touched_s
            if silent_s > FORGET_AFTER_S:
                self._drop(upload)
            elif not upload.begun:
                self._say(upload.peer, Written(upload.put.transfer, 0))
            elif silent_s > REST_AFTER_S:
                self._active.discard(upload.path)
        self._begin_next(now_s)

    def close(self) -> None:
        """Give up all partial files."""
        for upload in list(self._of_path.values()):
            self._drop(upload)

    def _store(self, peer: bytes, put: Put, data: Sequence[Frame], path: Path, now_s: float) -> None:
        """Store a whole file, which needs no place among the long files."""
        if path in self._of_path:
            self._drop(self._of_path[path])
        size = sum(map(len, data))
        if size != put.size_bytes:
            reason = f"{put.file}: {size} bytes came of {put.size_bytes}"
            self._say(peer, Refused(put.transfer, shortened(reason), again=False))
            return
        if _is_there(put, path):  # stored before, and its sender has not been told
            self._say(peer, Stored(put.transfer))
            return
        upload = _Upload(put, path, peer, now_s, written=size, begun=True)
        try:
            upload.temporary, upload.descriptor = _open_temporary(path)
            _write(upload.descriptor, data, 0)
        except OSError as error:
            self._refuse(upload, error, now_s)
        else:
            self._complete(upload, now_s)

    def _begin_next(self, now_s: float) -> None:
        while self._waiting and len(self._active) < AT_ONCE:
            upload = self._waiting.popleft()
            if self._of_path.get(upload.path) is not upload:
                continue  # given up meanwhile
            try:
                upload.temporary, upload.descriptor = _open_temporary(upload.path)
            except OSError as error:
                self._refuse(upload, error, now_s)
                continue
            upload.begun, upload.touched_s = True, now_s
            self._active.add(upload.path)
            if upload.put.size_bytes:
                self._say(upload.peer, Begin(upload.put.transfer, 0))
            else:
                self._complete(upload, now_s)

    def _complete(self, upload: _Upload, now_s: float) -> None:
        """Check the header of a complete file, and rename the file to the final name."""
        below = 0 if upload.put.kind == "description" else 2 if upload.put.policy else 1  # data/, data/<policy>/
        if not is_open(upload.path.parents[below]):
            self._drop(upload)
            self._say(upload.peer, Refused(upload.put.transfer, OVER, again=False))
            self._begin_next(now_s)
            return
        try:
            check_arrived(upload.put, upload.temporary)
            os.replace(upload.temporary, upload.path)
            upload.named = True
        except ChunkError as error:
            self._drop(upload)
            self._say(upload.peer, Refused(upload.put.transfer, shortened(str(error)), again=False))
        except OSError as error:
            self._refuse(upload, error, now_s)
        else:
            self._drop(upload)
            self._say(upload.peer, Stored(upload.put.transfer))
        self._begin_next(now_s)

    def _refuse(self, upload: _Upload, error: OSError, now_s: float) -> None:
        """Refuse a file because of the disk; a full disk, or too many open files, may pass."""
        self._drop(upload)
        passes = error.errno in (*DISK_IS_FULL, *TOO_MANY)
        text = f"{upload.path.name}: {error.strerror}"
        no_room = error.errno in DISK_IS_FULL
        self._say(upload.peer, Refused(upload.put.transfer, shortened(text), again=passes, no_room=no_room))

    def _drop(self, upload: _Upload) -> None:
        """Forget the file with its received bytes."""
        self._of_path.pop(upload.path, None)
        self._of_key.pop(upload.key, None)
        self._active.discard(upload.path)
        if upload.descriptor >= 0:
            os.close(upload.descriptor)
            upload.descriptor = -1
            if not upload.named:
                with contextlib.suppress(OSError):  # its folder is gone
                    upload.temporary.unlink(missing_ok=True)


def _is_there(put: Put, path: Path) -> bool:
    """True if this file is in place already. A description is always written again."""
    if put.kind == "description" or not os.path.lexists(path):
        return False
    try:
        check_arrived(put, path)
        return path.stat().st_size == put.size_bytes
    except (ChunkError, OSError):
        return False


def _open_temporary(path: Path) -> tuple[Path, int]:
    """Open a new file. Files with such names are removed after their writer's death (see storage/atomic.py)."""
    temporary = path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _write(descriptor: int, data: Sequence[Frame], offset: int) -> None:
    os.lseek(descriptor, offset, os.SEEK_SET)
    write_all(descriptor, data)


def append(path: Path, offset: int, data: Frame) -> int:
    """Append the missing part of these bytes, which belong at `offset`; returns the file's new size.

    Bytes after a gap are not appended: their sender sees the gap by the size. Raises OSError.
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
