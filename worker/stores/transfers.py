"""The worker's side of a file's transfer, as a state machine: next messages, and reactions to answers.

A transfer ends done, or refused for good. After a broken connection, or a restart of the server, it is opened again and
continues where the server says. Callers pass the time, and send its messages.
"""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from remuda.wire.codec import Frame
from remuda.wire.messages import Grant, PolicyRef
from remuda.wire.streams import (
    PIECE_BYTES,
    WHOLE_BYTES,
    WHOLE_PARTS,
    WINDOW_BYTES,
    Begin,
    FromServer,
    FromWorker,
    Get,
    GetKind,
    NothingNewer,
    Opened,
    Piece,
    Put,
    PutKind,
    Refused,
    Stored,
    Took,
    Written,
)

LARGE_BYTES = 64 << 10
"""A buffer of at least this size is not copied, but is a piece of its own."""
_ROOM_BYTES = WINDOW_BYTES - PIECE_BYTES + 1
"""With fewer bytes in flight, the window has room for a whole piece."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
"""Retry delays after a temporary refusal; the pauses double."""

Outgoing = tuple[FromWorker, Sequence[Frame]]
"""A message, and its frames with bytes of a file."""


class Transfer(ABC):
    """A transfer of the client's thread."""

    def __init__(self) -> None:
        self._number = 0
        self._over = threading.Event()
        self.problem = ""
        """The server's reason for a temporary refusal."""

    @property
    def finished(self) -> bool:
        """True at the end."""
        return self._over.is_set()

    @abstractmethod
    def open(self, number: int, now_s: float) -> None:
        """Begin, or go on after a break, under this number."""

    @abstractmethod
    def say(self, now_s: float) -> Iterator[Outgoing]:
        """Yield the messages to send now. Asking for the next message confirms the previous one as sent."""

    @abstractmethod
    def on_message(self, message: FromServer, data: Frame, now_s: float) -> None:
        """Take an answer."""

    @property
    @abstractmethod
    def expects(self) -> bool:
        """True if the server owes an answer, so that silence counts."""

    @property
    @abstractmethod
    def due_s(self) -> float:
        """Time of the next message without an answer; infinite while waiting for an answer."""

    def give_up(self, reason: str) -> None:
        """End the transfer: the client was closed, or nobody wants the file."""
        self._over.set()


class OneFile(Transfer):
    """Base of uploads and downloads. The main thread looks at `finished`, `refused` and `problem`."""

    def __init__(self) -> None:
        super().__init__()
        self._opening_due_s = math.inf
        self._pause_s = FIRST_PAUSE_S
        self.refused: Refused | None = None
        """Final refusal; None if done or unfinished."""
        self.lacks_bytes = 0
        """Size of an upload, if the disk was full at the last attempt; else 0."""

    @property
    def expects(self) -> bool:
        """False during a pause."""
        return not self.finished and self._opening_due_s == math.inf

    @property
    def due_s(self) -> float:
        """Time of the next opening, the first or a repeated one."""
        return self._opening_due_s

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; returns True if reached."""
        return self._over.wait(timeout_s)

    def open(self, number: int, now_s: float) -> None:
        """See Transfer."""
        self._number, self._opening_due_s = number, now_s

    def give_up(self, reason: str) -> None:
        """See Transfer."""
        self._finish(Refused(self._number, reason, again=False))

    def _finish(self, refused: Refused | None = None) -> None:
        self.refused = self.refused or refused
        self._over.set()

    def _on_refusal(self, refused: Refused, now_s: float, size: int = 0) -> None:
        if not refused.again:
            self._finish(refused)
            return
        self.problem, self.lacks_bytes = refused.reason, size if refused.no_room else 0
        self._opening_due_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)


class Upload(OneFile):
    """A file for the run folder. Its content must not change."""

    def __init__(
        self, grant: Grant, kind: PutKind, file: str, buffers: Sequence[bytes | memoryview], *, policy: str = ""
    ) -> None:
        """`policy`: the name of one of several policies."""
        super().__init__()
        self._grant, self.file, self._policy = grant, file, policy
        self._kind: PutKind = kind
        self._buffers = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        self._size = sum(map(len, self._buffers))
        self._begun = False
        self._sent = self._written = 0

    def say(self, now_s: float) -> Iterator[Outgoing]:
        """See Transfer."""
        if now_s >= self._opening_due_s:
            self._begun = False
            yield self._put()
            self._opening_due_s = math.inf
        while self._begun and not self.finished and self._sent < min(self._size, self._written + _ROOM_BYTES):
            data = self._bytes_at(self._sent)
            yield Piece(self._number, self._sent), [data]
            self._sent += len(data)

    def on_message(self, message: FromServer, data: Frame, now_s: float) -> None:
        """See Transfer."""
        match message:
            case Begin() if not self.finished:
                self._begun, self.problem, self._pause_s = True, "", FIRST_PAUSE_S
                self._sent = self._written = min(message.offset, self._size)
            case Written() if self._begun:
                self._written = min(max(self._written, message.below), self._size)
                self._sent = max(self._sent, self._written)
            case Stored():
                self._finish()
            case Refused():
                self._begun = False
                self._on_refusal(message, now_s, self._size)
            case _:
                pass

    def _put(self) -> Outgoing:
        """Return the opening message, with the bytes of a short file, so that one message is enough in every direction;
        a few columns are not copied."""
        put = Put(self._number, self._grant, self._kind, self.file, self._size, self._policy)
        if not 0 < self._size <= WHOLE_BYTES:
            return put, []
        parts: list[Frame] = []
        there = 0
        while there < self._size:
            parts.append(self._bytes_at(there))
            there += len(parts[-1])
        if len(parts) > WHOLE_PARTS:
            whole = memoryview(b"".join(parts))
            parts = [whole[start : start + PIECE_BYTES] for start in range(0, self._size, PIECE_BYTES)]
        return put, parts

    def _bytes_at(self, offset: int) -> Frame:
        """The next piece: a part of a large buffer without a copy, or small buffers together."""
        parts: list[memoryview] = []
        room = PIECE_BYTES
        for buffer in self._buffers:
            if offset >= len(buffer):
                offset -= len(buffer)
                continue
            part = buffer[offset : offset + room]
            if len(part) >= LARGE_BYTES:
                return b"".join(parts) if parts else part
            parts.append(part)
            room -= len(part)
            offset = 0
            if not room:
                break
        return b"".join(parts)


class Download(OneFile):
    """A file fetched to `path`, under a temporary name until it is whole."""

    def __init__(
        self,
        grant: Grant,
        kind: GetKind,
        file: str,
        path: Path,
        *,
        policy: str = "",
        newer_than: PolicyRef | None = None,
    ) -> None:
        """`policy`: the name of one of several policies. `newer_than`: fetch only a newer policy. Policies change, so a
        policy begins again after a break."""
        super().__init__()
        self._grant, self._file, self._policy, self._newer_than = grant, file, policy, newer_than
        self._kind: GetKind = kind
        self._path = path
        self._temporary = path.with_name(f".{path.name}.part")
        self._changes = kind in ("policy", "target")
        self._descriptor = -1
        self._size: int | None = None
        self._received = self._told = 0
        self.nothing_newer = False
        """The published policy is not newer; nothing was fetched."""

    def say(self, now_s: float) -> Iterator[Outgoing]:
        """See Transfer."""
        if now_s >= self._opening_due_s:
            self._size = None
            if self._changes:
                self._received = 0
            self._told = self._received
            newer_than, begun = self._newer_than, self._received
            yield Get(self._number, self._grant, self._kind, self._file, begun, newer_than, self._policy), []
            self._opening_due_s = math.inf
        if self._received > self._told:
            yield Took(self._number, self._received), []
            self._told = self._received
        if self._size is not None and self._received == self._size and not self.finished:
            self._complete()

    def on_message(self, message: FromServer, data: Frame, now_s: float) -> None:
        """See Transfer."""
        match message:
            case Opened():
                self._size, self.problem, self._pause_s = message.size_bytes, "", FIRST_PAUSE_S
                if message.size_bytes < self._received:
                    self.give_up(f"{self._file} became shorter while it was fetched")
            case Piece() if self._size is not None and message.offset == self._received:
                self._write(data)
            case NothingNewer():
                self.nothing_newer = True
                self._discard()
                self._finish()
            case Refused():
                self._on_refusal(message, now_s)
                if self.finished:
                    self._discard()
            case _:
                pass

    def give_up(self, reason: str) -> None:
        """See Transfer."""
        if not self.finished:
            self._discard()
        super().give_up(reason)

    def _write(self, data: Frame) -> None:
        try:
            if self._descriptor < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self._descriptor = os.open(self._temporary, flags, 0o600)
            rest, offset = memoryview(data), self._received
            while rest:
                count = os.pwrite(self._descriptor, rest, offset)
                rest, offset = rest[count:], offset + count
        except OSError as error:
            self.give_up(f"{self._temporary} cannot be written: {error.strerror}")
            return
        self._received += len(data)

    def _complete(self) -> None:
        """Rename the file to its final name; the file's reader checks the content."""
        try:
            if self._descriptor < 0:  # it is empty
                self._write(b"")
            os.ftruncate(self._descriptor, self._received)
            os.replace(self._temporary, self._path)
        except OSError as error:
            self.give_up(f"{self._path} cannot be written: {error.strerror}")
            return
        self._close()
        self._finish()

    def _discard(self) -> None:
        self._close()
        self._temporary.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
