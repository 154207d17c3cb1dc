"""Whether a client's or a worker's connection was let in: what ZeroMQ tells of its own attempts."""

from __future__ import annotations

import struct
from typing import Literal, cast

import zmq

EVENT = struct.Struct("=Hi")
"""The event and its value, as zmq_socket_monitor sends them. zmq.utils.monitor reads the same, but imports asyncio."""
_LET_IN = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_UNKNOWN = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
_BROKEN = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
_EVENTS, _READABLE = int(zmq.EVENTS), int(zmq.POLLIN)
MOST_BROKEN = 3
"""After this number of attempts in a row that ended without a word, nobody with the right key seems to be there. One
such attempt means little: a coordinator that is killed also ends connections without a word."""
NotLetIn = Literal["unknown key", "no exchange"]


class Admission:
    """Listens to the monitor of one DEALER."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._events = socket.get_monitor_socket(_LET_IN | _UNKNOWN | _BROKEN)
        self._broken = 0
        self.times_let_in = 0
        """How often a connection was made, as far as `listen` has heard."""
        self._found: NotLetIn | None = None

    def fileno(self) -> int:
        """A descriptor that becomes readable when there may be something for `listen`; edge-triggered."""
        descriptor: int = self._events.fileno()
        return descriptor

    def listen(self) -> None:
        """Take what ZeroMQ has told since the last call. Quick where there is nothing."""
        while cast("int", self._events.getsockopt(_EVENTS)) & _READABLE:
            header, *_ = self._events.recv_multipart()
            event, _ = EVENT.unpack(header)
            if event == _LET_IN:
                self._broken, self._found = 0, None
                self.times_let_in += 1
            elif event == _UNKNOWN:
                self._found = "unknown key"
            else:
                self._broken += 1
                if self._broken % MOST_BROKEN == 0:
                    self._found = self._found or "no exchange"

    def refusal(self) -> NotLetIn | None:
        """Why the connection is not made, if that was found since the last call.

        `unknown key`: the coordinator does not know this key; ZeroMQ tries no more. `no exchange`: nobody at the
        address has the coordinator's key; ZeroMQ goes on trying."""
        self.listen()
        found, self._found = self._found, None
        return found

    def close(self) -> None:
        """Stop listening; before the DEALER is closed. May be called again."""
        if not self._events.closed:
            self._socket.disable_monitor()
            self._events.close(linger=0)
