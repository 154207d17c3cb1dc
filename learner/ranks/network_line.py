"""A line to a rank of another process or host: ZeroMQ over TCP, encrypted by CURVE, with one key for all ranks.

Every rank of a learner has the key with which its worker joins the herd, and the same pair of keys follows from it.
Rank 0 shows that pair and lets in only who shows it, and the others speak only to who has it: so nobody else can be a
rank, or read what ranks send.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence

import zmq

from remuda.learner.ranks.line import HEADER, Line, Part
from remuda.policy.ranks import RankLostError
from remuda.wire.keys.pair import KeyPair, pair_of
from remuda.wire.sockets import allow_ipv6

PIECE_BYTES = 1 << 18
"""Long bodies are sent in pieces: one is encrypted while the one before is on its way. No frame is longer, so a
stranger cannot make a process keep more."""
PROBE_INTERVAL_S = 10
PROBES = 6
"""A connection over which the other host does not answer for PROBES * PROBE_INTERVAL_S is broken."""
LINGER_MS = 2_000
"""How long the last words may take to be sent."""
EVENT = struct.Struct("=Hi")
"""What a monitor tells: the event and its value."""
GONE = int(zmq.EVENT_DISCONNECTED)
NOBLOCK = int(zmq.NOBLOCK)
BROKEN = (OSError, zmq.ZMQError)
"""What sending or receiving raises when the connection is broken."""
_CURVE_EXTRA_BYTES = 1 << 10
"""Encryption makes a frame a little longer."""
_PURPOSE = b"remuda: ranks of a learner: "
Frames = deque[zmq.Frame]


def ranks_pair(own: KeyPair, group: str) -> KeyPair:
    """The pair of keys of all ranks of a group whose processes have the key `own`."""
    return pair_of("learner ranks", hmac.digest(own.secret, _PURPOSE + group.encode(), hashlib.sha256))


def prepared(zmq_socket: zmq.Socket[bytes], address: str) -> None:
    """Set what both ends have in common, before the socket is bound or connected."""
    allow_ipv6(zmq_socket, address)
    zmq_socket.linger = LINGER_MS
    zmq_socket.maxmsgsize = PIECE_BYTES + _CURVE_EXTRA_BYTES
    zmq_socket.sndhwm = zmq_socket.rcvhwm = 0  # a rank sends no more than is waited for
    zmq_socket.tcp_keepalive = 1
    zmq_socket.tcp_keepalive_idle = zmq_socket.tcp_keepalive_intvl = PROBE_INTERVAL_S
    zmq_socket.tcp_keepalive_cnt = PROBES - 1
    zmq_socket.tcp_maxrt = 1_000 * PROBES * PROBE_INTERVAL_S


def pieces(parts: Sequence[Part]) -> list[Part]:
    """The frames of a message: its header, and its body in pieces."""
    header, *body = parts
    views = [memoryview(part) for part in body]
    return [header, *(view[i : i + PIECE_BYTES] for view in views for i in range(0, len(view), PIECE_BYTES))]


def received(zmq_socket: zmq.Socket[bytes]) -> Frames | None:
    """The frames of the next message; None if there is none now."""
    try:
        frame = zmq_socket.recv(NOBLOCK, copy=False)
    except zmq.Again:
        return None
    frames: Frames = deque([frame])
    while frame.more:
        frame = zmq_socket.recv(NOBLOCK, copy=False)
        frames.append(frame)
    return frames


class NetworkLine(Line):
    """One end of such a line, over a socket that it does not own."""

    def __init__(
        self,
        far_end: str,
        timeout_s: float,
        *,
        put: Callable[[Sequence[Part]], None],
        take: Callable[[float | None], Frames | None],
    ) -> None:
        """`put` sends frames to the other end. `take` returns those of the next message that came from there, or None
        after this number of seconds. Both raise one of BROKEN."""
        super().__init__(far_end, timeout_s)
        self._put = put
        self._take = take
        self._frames: Frames = deque()

    def close(self) -> None:
        """See Line: who owns the socket closes it."""

    def _write(self, parts: Sequence[Part], timeout_s: float) -> None:
        try:
            self._put(pieces(parts))
        except BROKEN as error:
            raise self._gone() from error

    def _begin(self, timeout_s: float | None) -> bytes:
        try:
            frames = self._take(timeout_s)
        except BROKEN as error:
            raise self._gone() from error
        if frames is None:
            raise self._silent(timeout_s)
        header = frames.popleft().bytes
        self._frames = frames
        if len(header) != HEADER.size or HEADER.unpack(header)[1] != sum(len(frame) for frame in frames):
            raise RankLostError(f"{self.far_end} sent a message that is not whole")
        return header

    def _fill(self, view: memoryview, timeout_s: float | None) -> None:
        while view:
            frame = self._frames.popleft()
            view[: len(frame)] = frame.buffer
            view = view[len(frame) :]


def host_name() -> str:
    """Of this host, for people."""
    return socket.gethostname()
