"""ZeroMQ sockets for envelopes: sending never blocks, malformed messages never raise, and all speak with keys."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Literal, cast
from uuid import uuid4

import zmq
from msgspec import Struct

from remuda.wire.codec import (
    OF_COORDINATORS,
    OF_WORKERS,
    CodecError,
    Envelope,
    Frame,
    Limits,
    decode,
    encode,
)
from remuda.wire.keys.authorized import Identity
from remuda.wire.keys.folder import CallerKeys
from remuda.wire.keys.pair import require_curve
from remuda.wire.messages import PROTOCOL_VERSION

EVENT = struct.Struct("=Hi")
"""Event and value, as zmq_socket_monitor sends them. zmq.utils.monitor reads the same, but imports asyncio."""
_LET_IN = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_UNKNOWN = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
_BROKEN = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
_EVENTS, _READABLE = int(zmq.EVENTS), int(zmq.POLLIN)
MOST_BROKEN = 3
"""After this number of unanswered attempts in a row, the process at the address seems to lack the right key. A single
such attempt means little: a coordinator that is killed also ends connections without a word."""
NotLetIn = Literal["unknown key", "no exchange"]
HIGH_WATER_MESSAGES = 10_000
"""Messages that may wait to be sent to, or read from, one peer; more are dropped and, if reliable, sent again."""
SILENCE_S = 6.0
"""A connection without data for this time, although an answer is due, should be replaced.

ZeroMQ's own heartbeats do not serve here: if a peer floods its socket and is cut off, they end the process (an
assertion in libzmq 4.3.5, "Assertion failed: !_io_error").
"""
PROBE_INTERVAL_S = 2
"""Interval of TCP keepalive probes; the operating system drops a connection after SILENCE_S without an answer."""
RECONNECT_S = 0.1
RECONNECT_MAX_S = 1.0
"""Longest pause between two attempts to connect to a missing coordinator; the pauses double up to this. A short pause,
since a run stands still until its workers have found the restarted coordinator."""
NOBLOCK = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)  # plain numbers: putting pyzmq's flags together takes longer than sending


class Arrival(Struct, frozen=True):
    """An envelope, and the routing id of the peer (empty at a DealerSocket, with a single peer)."""

    peer: bytes
    envelope: Envelope
    who: Identity | None = None
    """Identity of the connection's key; None at a DealerSocket, whose single peer has the coordinator's key."""


class Malformed(Struct, frozen=True):
    """Arrived frames that are not an envelope; a ProtocolMismatchError has the version of the peer."""

    peer: bytes
    error: CodecError


def worker_identity(worker: str, incarnation: int, process: str, session: int) -> bytes:
    """Return the identity of a connection of a worker: worker, incarnation, process (a random word, which
    distinguishes two processes with the same incarnation), and number of the connection in this process."""
    return f"{worker}:{incarnation}:{process}:{session}".encode()


def client_identity() -> bytes:
    """A new identity for a client."""
    return f"client:{uuid4()}".encode()


def show_keys(socket: zmq.Socket[bytes], keys: CallerKeys) -> None:
    """Set the keys of a socket for the coordinator, before connecting. Raises NoCurveError."""
    require_curve()
    socket.curve_serverkey = bytes.fromhex(keys.server)
    socket.curve_publickey = keys.own.public_bytes
    socket.curve_secretkey = keys.own.secret


def allow_ipv6(socket: zmq.Socket[bytes], address: str) -> None:
    """Enable IPv6 if `address` needs it, as tcp://[::1]:5555; call before binding or connecting. Names become addresses
    of IPv4 and never of IPv6, since a name may have both and its host may listen at only one."""
    if "[" in address:
        socket.ipv6 = 1


class EnvelopeSocket:
    """Base of both kinds of sockets: limits, waiting, decoding, counting. For one thread only."""

    def __init__(self, kind: int, inbound: Limits, outbound: Limits, high_water: int | None = None) -> None:
        """`inbound` limits messages of the other ends, `outbound` messages of this end; `high_water` is the number of
        messages that may wait for one peer, by default HIGH_WATER_MESSAGES."""
        self._outbound = outbound
        self._context = zmq.Context()
        self._socket = self._context.socket(kind)
        # zmq.Socket's own `send` checks options that are not used here, which takes longer than sending
        self._send_frame: Callable[..., object] = super(zmq.Socket, self._socket).send
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self.dropped = 0
        """Unsent messages: peer unreachable or its queue full."""
        self.malformed = 0
        """Malformed messages received."""
        self._socket.linger = 0
        self._socket.maxmsgsize = max(inbound.header_bytes, inbound.array_bytes)
        self._socket.sndhwm = self._socket.rcvhwm = high_water or HIGH_WATER_MESSAGES
        self._socket.tcp_keepalive = 1
        self._socket.tcp_keepalive_idle = self._socket.tcp_keepalive_intvl = PROBE_INTERVAL_S
        self._socket.tcp_keepalive_cnt = int(SILENCE_S) // PROBE_INTERVAL_S - 1
        self._socket.tcp_maxrt = int(1_000 * SILENCE_S)

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when something may have arrived.

        Edge-triggered: receive until nothing is left before you wait for it, and again after each send.
        """
        descriptor: int = self._socket.fileno()
        return descriptor

    def watch(self, descriptor: int) -> None:
        """Let `wait` also return when this descriptor becomes readable."""
        self._poller.register(descriptor, zmq.POLLIN)

    def wait(self, timeout_s: float) -> None:
        """Return when something can be received, or the time is over."""
        self._poll(timeout_s)

    def _poll(self, timeout_s: float) -> list[tuple[object, int]]:
        return self._poller.poll(max(0, math.ceil(1_000 * timeout_s)))

    def close(self) -> None:
        """Close at once; unsent messages are lost. May be called again."""
        if not self._socket.closed:
            self._socket.close()
            self._context.term()

    def _content(self, frame: zmq.Frame) -> Frame:
        """Return the content of a received frame."""
        return frame.bytes

    def _receive(self) -> list[Frame] | None:
        try:
            frame = self._socket.recv(NOBLOCK, copy=False)
        except zmq.Again:
            return None
        frames: list[Frame] = [frame.bytes]
        while frame.more:  # like recv_multipart, in two thirds of the time
            frame = self._socket.recv(NOBLOCK, copy=False)
            frames.append(self._content(frame))
        return frames

    def _decode(
        self, peer: bytes, frames: Sequence[Frame], limits: Limits, who: Identity | None = None
    ) -> Arrival | Malformed:
        try:
            return Arrival(peer, decode(frames, limits), who)
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
            self._send_frame(last, NOBLOCK, copy=copy)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            self.dropped += 1
            return False
        return True


class DealerSocket(EnvelopeSocket):
    """A worker's or client's end: connected to a single coordinator, and again after each broken connection."""

    def __init__(
        self,
        address: str,
        identity: bytes,
        keys: CallerKeys,
        inbound: Limits = OF_COORDINATORS,
        outbound: Limits = OF_WORKERS,
        high_water: int | None = None,
    ) -> None:
        """Connect in the background; sending before the connection exists is fine. Raises zmq.ZMQError for a bad
        address, and NoCurveError."""
        super().__init__(zmq.DEALER, inbound, outbound, high_water)
        self._address = address
        show_keys(self._socket, keys)
        self._events = self._socket.get_monitor_socket(_LET_IN | _UNKNOWN | _BROKEN)
        self._broken = 0
        self._found: NotLetIn | None = None
        self.times_let_in = 0
        """Number of connections made, as of the last `wait` or `refusal`; a new connection may have lost messages in
        flight."""
        self._poller.register(self.admission_fileno(), zmq.POLLIN)
        self._socket.routing_id = identity
        self._socket.reconnect_ivl = int(1_000 * RECONNECT_S)
        self._socket.reconnect_ivl_max = int(1_000 * RECONNECT_MAX_S)
        allow_ipv6(self._socket, address)
        try:
            self._socket.connect(address)
        except zmq.ZMQError:
            self.close()
            raise

    def refusal(self) -> NotLetIn | None:
        """Return the reason of a failed connection, if found since the last call.

        `unknown key`: the coordinator does not know this key; ZeroMQ stops trying. `no exchange`: no process at the
        address has the coordinator's key; ZeroMQ continues to try.
        """
        self._listen()
        found, self._found = self._found, None
        return found

    def wait(self, timeout_s: float) -> None:
        """Return when something can be received, when `refusal` may have found something, or the time is over."""
        super().wait(timeout_s)
        self._listen()

    def admission_fileno(self) -> int:
        """Return a descriptor that becomes readable when `refusal` may find something; edge-triggered."""
        descriptor: int = self._events.fileno()
        return descriptor

    def close(self) -> None:
        """See the base."""
        if not self._socket.closed:
            self._socket.disable_monitor()
            self._events.close(linger=0)
        super().close()

    def _listen(self) -> None:
        """Take ZeroMQ's events since the last call. Quick without events."""
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

    def renew(self) -> None:
        """Connect again to the same address, with the same identity. Messages in flight are lost, and reliable messages
        are sent again."""
        self._socket.disconnect(self._address)
        self._socket.connect(self._address)

    def receive(self) -> Arrival | Malformed | None:
        """Return the next message, or None without a message."""
        frames = self._receive()
        return None if frames is None else self._decode(b"", frames, OF_COORDINATORS)

    def send(self, envelope: Envelope, *, protocol: int = PROTOCOL_VERSION) -> bool:
        """Hand the envelope to ZeroMQ; False, and counted, if the queue is full.

        Raises CodecError if the message itself cannot be sent.
        """
        return self._send([], envelope, protocol)
