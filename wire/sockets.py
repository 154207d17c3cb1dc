"""The two kinds of ZeroMQ socket, reduced to envelopes: they never block on a send and never raise on garbage."""

from __future__ import annotations

import math
from collections.abc import Callable
from uuid import uuid4

import zmq
from msgspec import Struct
from zmq.utils.monitor import recv_monitor_message

from remuda.wire.codec import (
    OF_COORDINATORS,
    OF_STRANGERS,
    OF_WORKERS,
    CodecError,
    Frame,
    Limits,
    TooEarlyError,
    TooLargeError,
    decode,
    encode,
)
from remuda.wire.connections import Connections, TcpWire
from remuda.wire.envelope import Envelope
from remuda.wire.messages import PROTOCOL_VERSION

HIGH_WATER_MESSAGES = 10_000
"""Waiting to be sent to, or read from, one peer; beyond that messages are dropped and, if reliable, come again."""
BACKLOG_CONNECTIONS = 1_024
"""Connections the operating system holds while a whole herd arrives at once."""
SILENCE_S = 6.0
"""A connection over which nothing has come for so long, though an answer is due, should be replaced.

Not by ZeroMQ's own heartbeats: where a peer floods its socket and is cut off meanwhile, they end the process (an
assertion in libzmq 4.3.5, "Assertion failed: !_io_error")."""
PROBE_INTERVAL_S = 2
"""The operating system asks whether the other host is still there, and gives a connection up after SILENCE_S."""
RECONNECT_S = 0.1
RECONNECT_MAX_S = 1.0
"""Between two attempts to connect to a coordinator that is gone; the pause doubles up to this. A run stands still until
its workers have found the one that was started again."""
MOST_BYTES_AT_ONCE = 4 << 20
"""After so many bytes no further message is taken in the same turn: each costs time to be understood."""
LOOK_INTERVAL_S = 0.1
"""Between two looks at how much waits on each connection."""
_MADE = int(zmq.EVENT_ACCEPTED)
_GONE = int(zmq.EVENT_DISCONNECTED)
_SOURCE = int(zmq.SRCFD)
_MOST_FRAMES = 3 + OF_WORKERS.arrays
_LONG_FRAME, _SHORT_FRAME_EXTRA, _LONG_FRAME_EXTRA = 256, 2, 9
"""What ZMTP puts before a frame, by how long that is."""
_NOBLOCK = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)  # plain numbers: putting pyzmq's flags together takes longer than sending


class Arrival(Struct, frozen=True):
    """An envelope, and the identity of the peer it came from (empty at a DealerSocket, which has one peer)."""

    peer: bytes
    envelope: Envelope


class Malformed(Struct, frozen=True):
    """Something came that is no envelope; a ProtocolMismatchError says which version the peer speaks."""

    peer: bytes
    error: CodecError


def worker_identity(worker: str, incarnation: int, process: str, session: int) -> bytes:
    """The identity of one connection of a worker: whose, in which life, in which process (a random word, so that two
    that claim the same life are told apart), and the connection's number in this process."""
    return f"{worker}:{incarnation}:{process}:{session}".encode()


def client_identity() -> bytes:
    """A new identity for a client."""
    return f"client:{uuid4()}".encode()


class _EnvelopeSocket:
    """What both kinds share: limits, waiting, decoding, counting. Belongs to one thread."""

    def __init__(self, kind: int, inbound: Limits, outbound: Limits) -> None:
        """`inbound` is the most that the other ends may say, `outbound` the most that this one may."""
        self._outbound = outbound
        self._context = zmq.Context()
        self._socket = self._context.socket(kind)
        # zmq.Socket's own looks for options that are not used here, which takes longer than sending
        self._send_frame: Callable[..., object] = super(zmq.Socket, self._socket).send
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self.dropped = 0
        """Messages that could not be sent: peer unreachable or its queue full."""
        self.malformed = 0
        """Messages received that were none."""
        self._socket.linger = 0
        self._socket.maxmsgsize = max(inbound.header_bytes, inbound.array_bytes)
        self._socket.sndhwm = self._socket.rcvhwm = HIGH_WATER_MESSAGES
        self._socket.tcp_keepalive = 1
        self._socket.tcp_keepalive_idle = self._socket.tcp_keepalive_intvl = PROBE_INTERVAL_S
        self._socket.tcp_keepalive_cnt = int(SILENCE_S) // PROBE_INTERVAL_S - 1
        self._socket.tcp_maxrt = int(1_000 * SILENCE_S)

    def fileno(self) -> int:
        """A descriptor that becomes readable when something may have arrived.

        It tells of a change only: receive until there is nothing before waiting for it, and again after each send.
        """
        descriptor: int = self._socket.fileno()
        return descriptor

    def watch(self, descriptor: int) -> None:
        """Let `wait` return also when this becomes readable."""
        self._poller.register(descriptor, zmq.POLLIN)

    def wait(self, timeout_s: float) -> None:
        """Return when something can be received, or the time is over."""
        self._poller.poll(max(0, math.ceil(1_000 * timeout_s)))

    def close(self) -> None:
        """Close at once; what is not sent yet is lost. May be called again."""
        if not self._socket.closed:
            self._socket.close()
            self._context.term()

    def _receive(self) -> list[bytes] | None:
        try:
            frame = self._socket.recv(_NOBLOCK, copy=False)
        except zmq.Again:
            return None
        frames = [frame.bytes]
        while frame.more:  # as recv_multipart, in two thirds of the time
            frame = self._socket.recv(_NOBLOCK, copy=False)
            frames.append(frame.bytes)
        return frames

    def _decode(self, peer: bytes, frames: list[bytes], limits: Limits) -> Arrival | Malformed:
        try:
            return Arrival(peer, decode(frames, limits))
        except CodecError as error:
            self.malformed += 1
            return Malformed(peer, error)

    def _send(self, route: list[bytes], envelope: Envelope, protocol: int) -> bool:
        return self._send_frames(route, encode(envelope, protocol=protocol, limits=self._outbound))

    def _send_frames(self, route: list[bytes], encoded: list[Frame]) -> bool:
        frames: list[Frame] = [*route, *encoded]
        last = frames.pop()
        try:
            # copy=False: pyzmq still copies frames below its threshold (64 KiB), where that is faster
            copy = len(encoded) == 2
            for frame in frames:
                self._send_frame(frame, _MORE, copy=copy)
            self._send_frame(last, _NOBLOCK, copy=copy)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            self.dropped += 1
            return False
        return True


class RouterSocket(_EnvelopeSocket):
    """The coordinator's end: bound to an address, many peers, each named by its identity."""

    def __init__(self, address: str, is_worker: Callable[[bytes], bool] = lambda peer: True) -> None:
        """Bind to `address`, such as tcp://127.0.0.1:0 for a free port. Raises zmq.ZMQError when that fails.

        `is_worker` says whether a peer is of the herd, and so may say more than a stranger.
        """
        super().__init__(zmq.ROUTER, OF_WORKERS, OF_COORDINATORS)
        self.connections = Connections(TcpWire(), is_worker)
        """Who is connected, and how much of each waits."""
        self._events = self._socket.get_monitor_socket(_MADE | _GONE)
        self._look_due_s = 0.0
        self._socket.router_mandatory = 1  # an unknown peer is an error instead of silence
        self._socket.router_handover = 1  # a worker that connects again takes over from its own broken connection
        self._socket.backlog = BACKLOG_CONNECTIONS
        try:
            self._socket.bind(address)
        except zmq.ZMQError:
            self.close()
            raise
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        """What it is bound to, with the real port."""

    def receive_up_to(self, most: int) -> list[Arrival | Malformed]:
        """The next messages that are there now, at most so many.

        All are taken off the network before the first is decoded: one kind of work at a time keeps what it needs in the
        processor's caches.
        """
        arrived: list[list[bytes]] = []
        room = MOST_BYTES_AT_ONCE
        while len(arrived) < most and room > 0 and (frames := self._receive()) is not None:
            arrived.append(frames)
            room -= len(frames[2]) if len(frames) == 3 else sum(map(len, frames))
        return [self._understand(peer, frames) for peer, *frames in arrived]

    def look_after(self, now_s: float) -> None:
        """Take note of who has connected and gone, and close what is in the way of others: see Connections."""
        if now_s < self._look_due_s:
            return
        self._look_due_s = now_s + LOOK_INTERVAL_S
        while self._events.poll(0):
            event = recv_monitor_message(self._events)
            if event["event"] == zmq.EVENT_ACCEPTED:
                self.connections.made(int(event["value"]), now_s)
            else:
                self.connections.gone(int(event["value"]))
        self.connections.look(now_s)

    def close(self) -> None:
        """See the base."""
        if not self._socket.closed:
            self._socket.disable_monitor()
            self._events.close(linger=0)
        super().close()

    def _receive(self) -> list[bytes] | None:
        try:
            frame = self._socket.recv(_NOBLOCK, copy=False)
        except zmq.Again:
            return None
        frames, size = [frame.bytes], 0
        while frame.more:  # as recv_multipart, in two thirds of the time
            frame = self._socket.recv(_NOBLOCK, copy=False)
            if len(frames) <= _MOST_FRAMES:  # what is beyond is refused, and need not be kept until then
                frames.append(frame.bytes)
            frame_bytes = len(frame)
            size += frame_bytes + (_SHORT_FRAME_EXTRA if frame_bytes < _LONG_FRAME else _LONG_FRAME_EXTRA)
        try:
            source = int(frame.get(_SOURCE))
        except zmq.ZMQError:
            return frames  # a peer of an old ZMTP does not say by which connection: that one counts as silent
        self.connections.took(source, frames[0], size)
        return frames

    def _understand(self, peer: bytes, frames: list[bytes]) -> Arrival | Malformed:
        plain = len(frames) == 2 and len(frames[1]) <= OF_STRANGERS.header_bytes
        limits = OF_STRANGERS if plain or not self.connections.is_worker(peer) else OF_WORKERS
        if limits is OF_STRANGERS and len(frames) > 2 and sum(map(len, frames)) <= limits.header_bytes:
            return Malformed(peer, TooEarlyError("arrays of somebody who is not registered"))
        event = self._decode(peer, frames, limits)
        if isinstance(event, Malformed) and isinstance(event.error, TooLargeError):
            self.connections.hang_up(peer)
        return event

    def send(self, peer: bytes, envelope: Envelope, *, protocol: int = PROTOCOL_VERSION) -> bool:
        """Hand the envelope to the network; False, and counted, when the peer is unreachable or its queue is full.

        Raises CodecError when the message itself cannot be sent.
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


class DealerSocket(_EnvelopeSocket):
    """A worker's or client's end: connected to one coordinator, and again whenever the connection breaks."""

    def __init__(self, address: str, identity: bytes) -> None:
        """Connect in the background; sending before that succeeds is fine. Raises zmq.ZMQError for a bad address."""
        super().__init__(zmq.DEALER, OF_COORDINATORS, OF_WORKERS)
        self._address = address
        self._socket.routing_id = identity
        self._socket.reconnect_ivl = int(1_000 * RECONNECT_S)
        self._socket.reconnect_ivl_max = int(1_000 * RECONNECT_MAX_S)
        try:
            self._socket.connect(address)
        except zmq.ZMQError:
            self.close()
            raise

    def renew(self) -> None:
        """Take another connection to the same address, under the same identity. What is on its way is lost, and what
        is reliable of it comes again."""
        self._socket.disconnect(self._address)
        self._socket.connect(self._address)

    def receive(self) -> Arrival | Malformed | None:
        """The next message, or None when there is none now."""
        frames = self._receive()
        return None if frames is None else self._decode(b"", frames, OF_COORDINATORS)

    def send(self, envelope: Envelope, *, protocol: int = PROTOCOL_VERSION) -> bool:
        """Hand the envelope to the network; False, and counted, when the queue is full.

        Raises CodecError when the message itself cannot be sent.
        """
        return self._send([], envelope, protocol)
