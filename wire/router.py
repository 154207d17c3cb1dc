"""The coordinator's socket: many peers, each admitted by its key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import cast

import zmq

from remuda.wire.codec import (
    OF_COORDINATORS,
    OF_STRANGERS,
    OF_WORKERS,
    Envelope,
    Frame,
    Limits,
    TooEarlyError,
    TooLargeError,
)
from remuda.wire.connections import Connections, TcpWire, most_silent
from remuda.wire.door import ZAP_ADDRESS, Door
from remuda.wire.keys.authorized import Identity
from remuda.wire.messages import PROTOCOL_VERSION
from remuda.wire.sockets import EVENT, NOBLOCK, Arrival, EnvelopeSocket, Malformed, allow_ipv6

BACKLOG_CONNECTIONS = 1_024
"""Connections the operating system holds while a whole herd arrives at once."""
MOST_BYTES_AT_ONCE = 4 << 20
"""After this number of bytes no further message is taken in the same turn, since decoding takes time."""
LOOK_INTERVAL_S = 0.1
"""Between two checks of the waiting bytes of each connection."""
KNOCKS_PER_TURN = 256
"""New connections that are admitted or refused before messages are handled again."""
_MADE = int(zmq.EVENT_ACCEPTED)
_GONE = int(zmq.EVENT_DISCONNECTED)
_NO_KEY = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
_WHO = cast("int", "User-Id")  # a string; pyzmq's annotation knows numbers only
_SOURCE = int(zmq.SRCFD)
_CURVE_EXTRA = 33
"""Bytes added to each frame by CURVE: a name of 8, a counter of 8, a check of 16, and 1 for flags."""
_LONG_FRAME, _SHORT_FRAME_EXTRA, _LONG_FRAME_EXTRA = 256 - _CURVE_EXTRA, 2 + _CURVE_EXTRA, 9 + _CURVE_EXTRA
"""Bytes that ZMTP and CURVE add to a short and to a long frame."""


class RouterSocket(EnvelopeSocket):
    """The coordinator's end: bound to an address, many peers, each named by its routing id and admitted by `door`."""

    def __init__(
        self,
        address: str,
        door: Door,
        is_worker: Callable[[bytes], bool] = lambda peer: True,
        *,
        inbound: Limits = OF_WORKERS,
        outbound: Limits = OF_COORDINATORS,
        high_water: int | None = None,
        listener: int | None = None,
    ) -> None:
        """Bind to `address`, such as tcp://127.0.0.1:0 for a free port, or take the listening descriptor `listener`,
        which then belongs to this socket. Raises zmq.ZMQError on failure.

        New connections are answered in `wait`. `is_worker` tells if a peer is a registered worker, which may send
        larger messages.
        """
        super().__init__(zmq.ROUTER, inbound, outbound, high_water)
        self._door = door
        self._most_frames = 3 + inbound.arrays
        self._knocks = self._context.socket(zmq.REP)
        self._knocks.linger = 0
        self._knocks.bind(ZAP_ADDRESS)
        self._poller.register(self._knocks, zmq.POLLIN)
        door.guard(self._socket)
        self.connections = Connections(TcpWire(), is_worker, most_silent())
        """All connections, and their waiting bytes."""
        self._who: Identity | None = None
        """Sender of the last received message."""
        self._events = self._socket.get_monitor_socket(_MADE | _GONE | _NO_KEY)
        self._look_due_s = 0.0
        self._socket.router_mandatory = 1  # an unknown peer is an error instead of silence
        self._socket.router_handover = 1  # a worker that connects again takes over from its own broken connection
        self._socket.backlog = BACKLOG_CONNECTIONS
        if listener is not None:
            self._socket.setsockopt(zmq.USE_FD, listener)
        allow_ipv6(self._socket, address)
        try:
            self._socket.bind(address)
        except zmq.ZMQError:
            self.close()
            raise
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        """Bound address, with the real port."""

    def receive_up_to(self, most: int) -> list[Arrival | Malformed]:
        """Return the next arrived messages, at most `most`.

        All messages are taken from ZeroMQ before the first is decoded: doing one kind of work at a time uses the
        processor's caches better.
        """
        arrived: list[tuple[Identity | None, list[Frame]]] = []
        room = MOST_BYTES_AT_ONCE
        while len(arrived) < most and room > 0 and (frames := self._receive()) is not None:
            arrived.append((self._who, frames))
            room -= len(frames[2]) if len(frames) == 3 else sum(map(len, frames))
        return [self._understand(who, bytes(peer), frames) for who, (peer, *frames) in arrived if who is not None]

    def wait(self, timeout_s: float) -> None:
        """As the base; also lets in, or refuses, whoever has connected."""
        if not any(ready is self._knocks for ready, _ in self._poll(timeout_s)):
            return
        with contextlib.suppress(zmq.Again):
            for _ in range(KNOCKS_PER_TURN):
                self._knocks.send_multipart(self._door.answer(self._knocks.recv_multipart(NOBLOCK)))

    def look_after(self, now_s: float) -> None:
        """Note new and closed connections, and close connections with too many bytes waiting: see Connections."""
        if now_s < self._look_due_s:
            return
        self._look_due_s = now_s + LOOK_INTERVAL_S
        while self._events.poll(0):
            header, *_ = self._events.recv_multipart()
            event, descriptor = EVENT.unpack(header)
            if event == _MADE:
                self.connections.made(descriptor, now_s)
            elif event == _GONE:
                self.connections.gone(descriptor)
            else:
                self._door.refusals.note("no_key", "a connection without a key, or for another coordinator's")
        self.connections.look(now_s)

    def close(self, *, linger_s: float = 0.0) -> None:
        """See the base; recent messages get `linger_s` seconds to leave."""
        if not self._socket.closed:
            self._socket.disable_monitor()
            self._events.close(linger=0)
            self._socket.close(linger=int(1_000 * linger_s))
            self._knocks.close()
            self._context.term()

    def _receive(self) -> list[Frame] | None:
        """Return the frames of the next message, the peer's routing id first; sets `_who` to the sender."""
        try:
            frame = self._socket.recv(NOBLOCK, copy=False)
        except zmq.Again:
            return None
        peer: bytes = frame.bytes
        frames: list[Frame] = [peer]
        size = 0
        while frame.more:  # as recv_multipart, in two thirds of the time
            frame = self._socket.recv(NOBLOCK, copy=False)
            if len(frames) <= self._most_frames:  # a message with more frames is refused, so they need not be kept
                frames.append(self._content(frame))
            frame_bytes = len(frame)
            size += frame_bytes + (_SHORT_FRAME_EXTRA if frame_bytes < _LONG_FRAME else _LONG_FRAME_EXTRA)
        self.connections.took(int(frame.get(_SOURCE)), peer, size)
        self._who = self._whose(frame)
        if self._who is None:
            self._door.refusals.note("revoked_key", "a connection that was made with it before")
            self.connections.hang_up(peer)
        return frames

    def _whose(self, frame: zmq.Frame) -> Identity | None:
        """Return the sender of this frame, as proved by the key of its connection."""
        return self._door.who(str(frame.get(_WHO)))

    def _understand(self, who: Identity, peer: bytes, frames: Sequence[Frame]) -> Arrival | Malformed:
        plain = len(frames) == 2 and len(frames[1]) <= OF_STRANGERS.header_bytes
        limits = OF_STRANGERS if plain or not self.connections.is_worker(peer) else OF_WORKERS
        if limits is OF_STRANGERS and len(frames) > 2 and sum(map(len, frames)) <= limits.header_bytes:
            return Malformed(peer, TooEarlyError("arrays from a peer that is not registered"))
        event = self._decode(peer, frames, limits, who)
        if isinstance(event, Malformed) and isinstance(event.error, TooLargeError):
            self.connections.hang_up(peer)
        return event

    def send(self, peer: bytes, envelope: Envelope, *, protocol: int = PROTOCOL_VERSION) -> bool:
        """Hand the envelope to ZeroMQ; returns False, and counts the message as dropped, if the peer is unreachable or
        its queue is full.

        Raises CodecError if the message itself cannot be sent.
        """
        return self._send([peer], envelope, protocol)

    def _send_frames(self, route: list[bytes], encoded: list[Frame]) -> bool:
        sent = super()._send_frames(route, encoded)
        if sent:
            handed_bytes = 0
            for frame in encoded:
                frame_bytes = len(frame)
                handed_bytes += frame_bytes + (_SHORT_FRAME_EXTRA if frame_bytes < _LONG_FRAME else _LONG_FRAME_EXTRA)
            self.connections.handed(route[0], handed_bytes)
        return sent
