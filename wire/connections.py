"""Limits the bytes of each connection that wait in memory, and closes connections beyond the limits.

ZeroMQ limits the number of waiting messages and the size of one frame. This module limits endless messages, large
untaken messages, and unread answers: it compares the operating system's byte counts of a connection with the bytes that
were taken from ZeroMQ and handed to it.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

MOST_OF_STRANGERS_BYTES = 4 << 20
"""Received from a peer that is not a registered worker, and not taken yet: twice its largest message."""
MOST_OF_WORKERS_BYTES = 192 << 20
"""Received from a worker and not taken yet: its largest message and some more."""
MOST_FOR_STRANGERS_BYTES = 32 << 20
"""Waiting to be read by a peer that is not a registered worker."""
MOST_FOR_WORKERS_BYTES = 256 << 20
"""Waiting to be read by a worker: the largest messages are for learners."""
FIRST_WORD_S = 30.0
"""A new connection without any data for this time is closed."""
MOST_SILENT = 2_048
"""Connections without any data yet; beyond this number, the oldest are closed. A thousand workers that arrive at once
are silent for seconds, while their keys are checked."""
SILENT_SHARE = 0.5
"""Limit of silent connections, as a share of the files that the process may have open."""
WORKERS_LOOKED_AT = 256
"""Connections of workers checked in one turn; silent connections and strangers are checked in every turn."""
_TCP_INFO_BYTES = 136
_ACKED_AND_RECEIVED = struct.Struct("=QQ")
_ACKED_OFFSET = 120


@dataclass
class _Connection:
    descriptor: int
    far_end: object
    made_s: float
    peer: bytes = b""
    """The peer of the last message; empty before the first."""
    taken: int = 0
    handed: int = 0

    def backlog(self, acked: int, received: int) -> tuple[int, int]:
        """Return the bytes received and not taken, and the bytes handed over and not yet arrived. Ignores counts of a
        former connection with the same descriptor."""
        self.taken, self.handed = min(self.taken, received), max(self.handed, 0)
        return received - self.taken, self.handed - acked


class Connections:
    """Every connection of one socket. Reads no clock; opens and owns no descriptor."""

    def __init__(self, wire: TcpWire, is_worker: Callable[[bytes], bool], most_silent: int = MOST_SILENT) -> None:
        self._wire = wire
        self._most_silent = most_silent
        self.is_worker = is_worker
        """Tells if a peer is a registered worker."""
        self._all: dict[int, _Connection] = {}
        self._of_peer: dict[bytes, _Connection] = {}
        self._silent: dict[int, _Connection] = {}
        """Connections without any data yet, the oldest first."""
        self._strangers: dict[int, _Connection] = {}
        self._workers: dict[int, _Connection] = {}
        """In the order of their last check."""
        self.closed = 0
        """Number of connections that this object has closed."""

    def __len__(self) -> int:
        return len(self._all)

    # --- what happens ---

    def made(self, descriptor: int, now_s: float) -> None:
        """Note a new connection. Messages from it may have been taken before this call."""
        known = self._all.get(descriptor)
        if known is not None and known.far_end == self._wire.far_end(descriptor):
            known.made_s = now_s
            return
        self._begin(descriptor, now_s)
        while len(self._silent) > self._most_silent:
            self._close(next(iter(self._silent.values())))

    def gone(self, descriptor: int) -> None:
        """Note a closed connection."""
        connection = self._all.pop(descriptor, None)
        if connection is None:
            return
        for each in (self._silent, self._strangers, self._workers):
            each.pop(descriptor, None)
        if self._of_peer.get(connection.peer) is connection:
            del self._of_peer[connection.peer]

    def took(self, descriptor: int, peer: bytes, size: int) -> None:
        """Note a message of `size` bytes, frame headers included, as taken from ZeroMQ."""
        connection = self._all.get(descriptor) or self._begin(descriptor, 0.0)
        connection.taken += size
        if connection.peer != peer:
            self._met(connection, peer)

    def handed(self, peer: bytes, size: int) -> None:
        """Note a message of `size` bytes for this peer as handed to ZeroMQ."""
        connection = self._of_peer.get(peer)
        if connection is not None:
            connection.handed += size

    def has(self, peer: bytes) -> bool:
        """True if this peer has sent a message and is connected."""
        return peer in self._of_peer

    def hang_up(self, peer: bytes) -> None:
        """End the connection of this peer, if any."""
        connection = self._of_peer.get(peer)
        if connection is not None:
            self._close(connection)

    # --- now and then ---

    def look(self, now_s: float) -> None:
        """Close connections with too many bytes waiting, and connections without data for too long."""
        for connection in list(self._silent.values()):
            if now_s - connection.made_s > FIRST_WORD_S or self._waits_too_much(connection):
                self._close(connection)
        for connection in list(self._strangers.values()):
            self._look_at(connection)
        for _ in range(min(len(self._workers), WORKERS_LOOKED_AT)):
            self._look_at(self._workers.pop(next(iter(self._workers))))

    # --- inside ---

    def _begin(self, descriptor: int, now_s: float) -> _Connection:
        self.gone(descriptor)
        connection = _Connection(descriptor, self._wire.far_end(descriptor), now_s)
        self._all[descriptor] = self._silent[descriptor] = connection
        return connection

    def _met(self, connection: _Connection, peer: bytes) -> None:
        self._silent.pop(connection.descriptor, None)
        if self._of_peer.get(connection.peer) is connection:
            del self._of_peer[connection.peer]
        connection.peer = peer
        self._of_peer[peer] = connection
        self._strangers[connection.descriptor] = connection

    def _look_at(self, connection: _Connection) -> None:
        if self._waits_too_much(connection):
            self._close(connection)
            return
        known = self.is_worker(connection.peer)
        kept, left = (self._workers, self._strangers) if known else (self._strangers, self._workers)
        left.pop(connection.descriptor, None)
        kept[connection.descriptor] = connection

    def _waits_too_much(self, connection: _Connection) -> bool:
        counts = self._wire.counts(connection.descriptor)
        if counts is None:
            return False
        inbound, outbound = connection.backlog(*counts)
        if inbound <= MOST_OF_STRANGERS_BYTES and outbound <= MOST_FOR_STRANGERS_BYTES:
            return False
        if not self.is_worker(connection.peer):
            return True
        return inbound > MOST_OF_WORKERS_BYTES or outbound > MOST_FOR_WORKERS_BYTES

    def _close(self, connection: _Connection) -> None:
        """Close the connection, unless its descriptor belongs to another connection by now: ZeroMQ's thread may close
        and reuse descriptors at any time."""
        self.gone(connection.descriptor)
        if connection.far_end is not None and self._wire.far_end(connection.descriptor) == connection.far_end:
            self.closed += 1
            self._wire.hang_up(connection.descriptor)


def most_silent() -> int:
    """Return the number of silent connections that this process can afford."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_SILENT if files == resource.RLIM_INFINITY else min(MOST_SILENT, int(SILENT_SHARE * files))


class TcpWire:
    """The operating system's view of this process's TCP connections."""

    def far_end(self, descriptor: int) -> object:
        """Returns the other end's address; None if the connection is closed."""
        with _borrowed(descriptor) as borrowed:
            return None if borrowed is None else borrowed.getpeername()
        return None

    def counts(self, descriptor: int) -> tuple[int, int] | None:
        """Returns the acknowledged and the received bytes. None where the system does not report them: these limits
        work on Linux only."""
        if not hasattr(socket, "TCP_INFO"):
            return None
        with _borrowed(descriptor) as borrowed:
            if borrowed is None:
                return None
            found = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            if len(found) < _TCP_INFO_BYTES:
                return None
            acked, received = _ACKED_AND_RECEIVED.unpack_from(found, _ACKED_OFFSET)
            return int(acked), int(received)
        return None

    def hang_up(self, descriptor: int) -> None:
        """Ends the connection. Its socket stays its owner's."""
        with _borrowed(descriptor) as borrowed:
            if borrowed is not None:
                borrowed.shutdown(socket.SHUT_RDWR)


class _borrowed:  # noqa: N801  (used as a function)
    """A socket object for a descriptor of ZeroMQ; None if the descriptor is no socket any more. Suppresses an OSError
    inside, which means that the connection is gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._socket: socket.socket | None = None

    def __enter__(self) -> socket.socket | None:
        with contextlib.suppress(OSError):
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=self._descriptor)
        return self._socket

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if self._socket is not None:
            self._socket.detach()
        return isinstance(error, OSError)
