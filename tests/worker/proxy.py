"""A TCP proxy that can cut its connections, swallow all that passes (a cable pulled out), or damage it."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from types import ModuleType

import pytest

from remuda.tests.worker.serving import Serving


class Proxy(Serving):
    """Listens on a free port and forwards to `port`. A context manager.

    It waits for no end: one that has stopped reading, as a server does with a connection that it gives up, holds up its
    own connection alone.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._other: dict[socket.socket, socket.socket] = {}
        self._waiting: dict[socket.socket, bytes] = {}
        """What an end does not take yet. Its other end is not read meanwhile."""
        self._swallowed: set[socket.socket] = set()
        self._damages_from_bytes: int | None = None
        self._lock = threading.Lock()
        self.connections = 0
        self._accepted: Callable[[], None] = lambda: None
        self._usual_silence_s: float | None = None

    @property
    def damaged(self) -> bool:
        """Whether what `damage` asked for is done."""
        return self._damages_from_bytes is None

    def silence_is_over(self, module: ModuleType, patch: pytest.MonkeyPatch) -> None:
        """For who waits for `module.SILENCE_S`: every silence has lasted for so long, until another connection is made.

        On that one as much silence is allowed as ever: however slow the machine is, it is not given up, too.
        """
        usual_s = self._usual_silence_s = self._usual_silence_s or module.SILENCE_S
        with self._lock:
            self._accepted = lambda: patch.setattr(module, "SILENCE_S", usual_s)
            patch.setattr(module, "SILENCE_S", 0.0)

    def cut(self) -> None:
        """Close every connection; new ones are served."""
        with self._lock:
            for end in [*self._other]:
                self._close(end)

    def swallow(self) -> None:
        """Keep every connection open but forward nothing on it any more; new ones are served."""
        with self._lock:
            self._swallowed |= set(self._other)

    def damage(self, from_bytes: int) -> None:
        """Change one byte of the next block, in either direction, that has at least so many."""
        with self._lock:
            self._damages_from_bytes = from_bytes

    def _let_go(self) -> None:
        self.cut()
        self._selector.close()
        self._listener.close()

    def _serve(self) -> None:
        while not self._stop:
            for key, events in self._selector.select(0.01):
                with self._lock:
                    self._attend(key.fileobj, events)

    def _attend(self, end: object, events: int) -> None:
        if end is self._listener:
            self._accept()
        elif isinstance(end, socket.socket) and end in self._other:
            if not events:  # nothing was waited for, so it was reset
                self._close(end)
            elif events & selectors.EVENT_WRITE:
                self._send(end, self._waiting.pop(end))
            elif self._other[end] not in self._waiting:
                self._forward(end)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(self._target)
        self._other |= {near: far, far: near}
        for end in (near, far):
            end.setblocking(False)
            self._selector.register(end, selectors.EVENT_READ)
        self.connections += 1
        self._accepted()

    def _forward(self, end: socket.socket) -> None:
        try:
            data = end.recv(65_536)
        except OSError:
            data = b""
        if not data:
            self._close(end)
        elif end not in self._swallowed:
            self._send(self._other[end], self._maybe_damaged(data))

    def _send(self, end: socket.socket, data: bytes) -> None:
        """Hand over what `end` takes now, and keep the rest."""
        sent = 0
        try:
            with contextlib.suppress(BlockingIOError):
                sent = end.send(data)
        except OSError:  # it has gone meanwhile
            self._close(end)
            return
        if sent < len(data):
            self._waiting[end] = data[sent:]
        self._watch(end, reads=self._other[end] not in self._waiting)
        self._watch(self._other[end], reads=end not in self._waiting)

    def _watch(self, end: socket.socket, *, reads: bool) -> None:
        reading = selectors.EVENT_READ if reads else 0
        writing = selectors.EVENT_WRITE if end in self._waiting else 0
        self._selector.modify(end, reading | writing)

    def _maybe_damaged(self, data: bytes) -> bytes:
        if self._damages_from_bytes is None or len(data) < self._damages_from_bytes:
            return data
        self._damages_from_bytes = None
        return data[:-1] + bytes([data[-1] ^ 1])

    def _close(self, end: socket.socket) -> None:
        for socket_ in (end, self._other.pop(end, end)):
            self._other.pop(socket_, None)
            self._waiting.pop(socket_, None)
            self._swallowed.discard(socket_)
            if socket_.fileno() >= 0:
                self._selector.unregister(socket_)
                socket_.close()
