"""A line to a process of the same machine: a pair of connected sockets, of which the child inherits one.

It has no address, so nobody else can connect to it or read it, and it breaks when the process at its other end dies.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence

from remuda.learner.ranks.line import HEADER, Line, Part

BUFFER_BYTES = 4 << 20
"""What may be on its way; the system may give less."""
_JOINED_BYTES = 1 << 16
"""Shorter messages are copied into one piece: one call of the system is quicker than two."""


def line_pair() -> tuple[socket.socket, socket.socket]:
    """Two sockets that are connected to each other, and to nobody else."""
    pair = socket.socketpair()
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return pair


class LocalLine(Line):
    """One end of such a pair."""

    def __init__(self, end: socket.socket, far_end: str, timeout_s: float) -> None:
        """`end` belongs to this line from now on."""
        super().__init__(far_end, timeout_s)
        self._socket = end
        self._socket_timeout_s: float | None = -1.0

    def is_broken(self) -> bool:
        """Whether the process at the other end has closed its end, or died. Does not wait."""
        return bool(self._breaking().poll(0))

    def wait_until_broken(self) -> None:
        """Return when the process at the other end has closed its end, or died; may be called by another thread."""
        self._breaking().poll()

    def close(self) -> None:
        """See Line."""
        self._socket.close()

    def _write(self, parts: Sequence[Part], timeout_s: float) -> None:
        self._have_timeout(timeout_s)
        try:
            if sum(len(part) for part in parts) <= _JOINED_BYTES:
                self._socket.sendall(b"".join(parts))
                return
            for part in parts:
                self._socket.sendall(part)
        except TimeoutError:
            raise self._silent(timeout_s) from None
        except OSError as error:
            raise self._gone() from error

    def _begin(self, timeout_s: float | None) -> bytes:
        header = bytearray(HEADER.size)
        self._fill(memoryview(header), timeout_s)
        return bytes(header)

    def _fill(self, view: memoryview, timeout_s: float | None) -> None:
        self._have_timeout(timeout_s)
        try:
            while view:
                received = self._socket.recv_into(view)
                if not received:
                    raise self._gone()
                view = view[received:]
        except TimeoutError:
            raise self._silent(timeout_s) from None
        except OSError as error:
            raise self._gone() from error

    def _breaking(self) -> select.poll:
        """What tells of a hang-up, and of nothing else."""
        poll = select.poll()
        poll.register(self._socket, 0)
        return poll

    def _have_timeout(self, timeout_s: float | None) -> None:
        if timeout_s != self._socket_timeout_s:
            self._socket.settimeout(timeout_s)
            self._socket_timeout_s = timeout_s
