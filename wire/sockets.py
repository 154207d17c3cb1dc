"""The two kinds of ZeroMQ sockets, for envelopes: sending never blocks, and malformed messages never raise."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from uuid import uuid4

import zmq
from msgspec import Struct

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

_MONITOR_EVENT = struct.Struct("=Hi")
"""The event and its value, as zmq_socket_monitor sends them. zmq.utils.monitor reads the same, but imports asyncio."""
HIGH_WATER_MESSAGES = 10_000
"""Messages that may wait to be sent to, or read from, one peer; more are dropped and, if reliable, sent again."""
BACKLOG_CONNECTIONS = 1_024
"""Connections the operating system holds while a whole herd arrives at once."""
SILENCE_S = 6.0
"""A connection over which nothing arrived for this time, although an answer is due, should be replaced.

ZeroMQ's own heartbeats are not used for it: if a peer floods its socket and is cut off, they end the process (an
assertion in libzmq 4.3.5, "Assertion failed: !_io_error")."""
PROBE_INTERVAL_S = 2
"""Interval of TCP keepalive probes; the operating system drops a connection after SILENCE_S without an answer."""
RECONNECT_S = 0.1
RECONNECT_MAX_S = 1.0
"""Longest pause between two attempts to connect to a coordinator that is gone; the pauses double up to this. It is
short, since a run stands still until its workers have found the restarted coordinator."""
MOST_BYTES_AT_ONCE = 4 << 20
"""After this number of bytes no further message is taken in the same turn, since decoding takes time."""
LOOK_INTERVAL_S = 0.1
"""Between two checks of the bytes that wait on each connection."""
_MADE = int(zmq.EVENT_ACCEPTED)
_GONE = int(zmq.EVENT_DISCONNECTED)
_SOURCE = int(zmq.SRCFD)
_MOST_FRAMES = 3 + OF_WORKERS.arrays
_LONG_FRAME, _SHORT_FRAME_EXTRA, _LONG_FRAME_EXTRA = 256, 2, 9
"""Bytes that ZMTP adds to a short and to a long frame."""
_NOBLOCK = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)  # plain numbers: putting pyzmq's flags together takes longer than sending


class Arrival(Struct, frozen=True):
    """An envelope, and the identity of the peer it came from (empty at a DealerSocket, which has one peer)."""

    peer: bytes
    envelope: Envelope


class Malformed(Struct, frozen=True):
    """Something arrived that is not an envelope; a ProtocolMismatchError tells the version of the peer."""

    peer: bytes
    error: CodecError


def worker_identity(worker: str, incarnation: int, process: str, session: int) -> bytes:
    """The identity of one connection of a worker: worker, incarnation, process (a random word, which distinguishes two
    processes with the same incarnation), and number of the connection in this process."""
    return f"{worker}:{incarnation}:{process}:{session}".encode()


def client_identity() -> bytes:
    """A new identity for a client."""
    return f"client:{uuid4()}".encode()


class _EnvelopeSocket:
    """What both kinds share: limits, waiting, decoding, counting. For one thread only."""

    def __init__(self, kind: int, inbound: Limits, outbound: Limits) -> None:
        """`inbound` limits messages of the other ends, `outbound` those of this end."""
        self._outbound = outbound
        self._context = zmq.Context()
        self._socket = self._context.socket(kind)
        # zmq.Socket's own `send` checks options that are not used here, which takes longer than sending
        self._send_frame: Callable[..., object] = super(zmq.Socket, self._socket).send
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self.dropped = 0
        """Messages that could not be sent: peer unreachable or its queue full."""
        self.malformed = 0
        """Malformed messages received."""
        self._socket.linger = 0
        self._socket.maxmsgsize = max(inbound.header_bytes, inbound.array_bytes)
        self._socket.sndhwm = self._socket.rcvhwm = HIGH_WATER_MESSAGES
        self._socket.tcp_keepalive = 1
        self._socket.tcp_keepalive_idle = self._socket.tcp_keepalive_intvl = PROBE_INTERVAL_S
        self._socket.tcp_keepalive_cnt = int(SILENCE_S) // PROBE_INTERVAL_S - 1
        self._socket.tcp_maxrt = int(1_000 * SILENCE_S)

    def fileno(self) -> int:
        """A descriptor that becomes readable when something may have arrived.

        It is edge-triggered: receive until there is nothing more before you wait for it, and again after each send.
        """
        descriptor: int = self._socket.fileno()
        return descriptor

    def watch(self, descriptor: int) -> None:
        """Let `wait` also return when this descriptor becomes readable."""
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
        while frame.more:  # like recv_multipart, in two thirds of the time
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

        `is_worker` tells whether a peer is a registered worker, which may send larger messages than others.
        """
        super().__init__(zmq.ROUTER, OF_WORKERS, OF_COORDINATORS)
        self.connections = Connections(TcpWire(), is_worker)
        """All connections, and how many bytes of each wait."""
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
        """The address it is bound to, with the real port."""

    def receive_up_to(self, most: int) -> list[Arrival | Malformed]:
        """The next messages that have arrived, at most `most`.

        All of them are taken from ZeroMQ before the first is decoded: doing one kind of work at a time uses the
        processor's caches better.
        """
        arrived: list[list[bytes]] = []
        room = MOST_BYTES_AT_ONCE
        while len(arrived) < most and room > 0 and (frames := self._receive()) is not None:
            arrived.append(frames)
            room -= len(frames[2]) if len(frames) == 3 else sum(map(len, frames))
        return [self._understand(peer, frames) for peer, *frames in arrived]

    def look_after(self, now_s: float) -> None:
        """Note new and closed connections, and close those with too many bytes waiting: see Connections."""
        if now_s < self._look_due_s:
            return
        self._look_due_s = now_s + LOOK_INTERVAL_S
        while self._events.poll(0):
            header, *_ = self._events.recv_multipart()
            event, descriptor = _MONITOR_EVENT.unpack(header)
            if event == zmq.EVENT_ACCEPTED:
                self.connections.made(descriptor, now_s)
            else:
                self.connections.gone(descriptor)
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
            if len(frames) <= _MOST_FRAMES:  # a message with more frames is refused, so they need not be kept
                frames.append(frame.bytes)
            frame_bytes = len(frame)
            size += frame_bytes + (_SHORT_FRAME_EXTRA if frame_bytes < _LONG_FRAME else _LONG_FRAME_EXTRA)
        try:
            source = int(frame.get(_SOURCE))
        except zmq.ZMQError:
            return frames  # with an old ZMTP the connection is not known, and counts as silent
        self.connections.took(source, frames[0], size)
        return frames

    def _understand(self, peer: bytes, frames: list[bytes]) -> Arrival | Malformed:
        plain = len(frames) == 2 and len(frames[1]) <= OF_STRANGERS.header_bytes
        limits = OF_STRANGERS if plain or not self.connections.is_worker(peer) else OF_WORKERS
        if limits is OF_STRANGERS and len(frames) > 2 and sum(map(len, frames)) <= limits.header_bytes:
            return Malformed(peer, TooEarlyError("arrays from a peer that is not registered"))
        event = self._decode(peer, frames, limits)
        if isinstance(event, Malformed) and isinstance(event.error, TooLargeError):
            self.connections.hang_up(peer)
        return event

    def send(self, peer: bytes, envelope: Envelope, *, protocol: int = PROTOCOL_VERSION) -> bool:
        """Hand the envelope to ZeroMQ; False, and counted, if the peer is unreachable or its queue is full.

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
        """Connect again to the same address, with the same identity. Messages on their way are lost, and reliable ones
        are sent again."""
        self._socket.disconnect(self._address)
        self._socket.connect(self._address)

    def receive(self) -> Arrival | Malformed | None:
        """The next message, or None when there is none now."""
        frames = self._receive()
        return None if frames is None else self._decode(b"", frames, OF_COORDINATORS)

    def send(self, envelope: Envelope, *, protocol: int = PROTOCOL_VERSION) -> bool:
        """Hand the envelope to ZeroMQ; False, and counted, if the queue is full.

        Raises CodecError if the message itself cannot be sent.
        """
        return self._send([], envelope, protocol)
