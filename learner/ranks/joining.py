"""The other ranks' end of the lines to rank 0, from other processes and hosts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import zmq

from remuda.learner.ranks.following import Here, serve_leases
from remuda.learner.ranks.line import Part
from remuda.learner.ranks.network_line import EVENT, GONE, NOBLOCK, Frames, NetworkLine, host_name, prepared, received
from remuda.policy.ranks import RankLostError
from remuda.wire.keys.pair import KeyPair, require_curve

LOOK_AGAIN_S = 2.0
"""After so long without being let in, the address is asked for again: rank 0 may have been started again."""
_LET_IN = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)


class RankConnection:
    """A connection to rank 0. It is made once: when it breaks, this rank is lost."""

    def __init__(self, address: str, pair: KeyPair) -> None:
        """Connect in the background. Raises NoCurveError."""
        require_curve()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.curve_serverkey = self._socket.curve_publickey = pair.public_bytes
        self._socket.curve_secretkey = pair.secret
        prepared(self._socket, address)
        self._events = self._socket.get_monitor_socket(GONE | _LET_IN)
        self._poller = zmq.Poller()
        for each in (self._socket, self._events):
            self._poller.register(each, zmq.POLLIN)
        self.let_in = False
        """Whether rank 0 has let it in."""
        self._gone = False
        self._socket.connect(address)

    def wait_let_in(self, within_s: float) -> bool:
        """Wait until it is let in; False if it was not."""
        deadline_s = time.monotonic() + within_s
        while not self.let_in and (left_s := deadline_s - time.monotonic()) > 0:
            self._turn(left_s)
        return self.let_in

    def line(self, timeout_s: float) -> NetworkLine:
        """The line over it."""
        return NetworkLine("learner rank 0", timeout_s, put=self._put, take=self._take)

    def close(self) -> None:
        """Close it; may be called again."""
        if not self._socket.closed:
            self._socket.disable_monitor()
            self._events.close(linger=0)
            self._socket.close()
            self._context.term()

    def _put(self, frames: Sequence[Part]) -> None:
        self._socket.send_multipart(list(frames), NOBLOCK)

    def _take(self, timeout_s: float | None) -> Frames | None:
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while (frames := received(self._socket)) is None:
            if self._gone:
                raise ConnectionResetError
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return None
            self._turn(left_s)
        return frames

    def _turn(self, timeout_s: float | None) -> None:
        """Wait for something, at most `timeout_s`."""
        ready = dict(self._poller.poll(None if timeout_s is None else int(1_000 * timeout_s) + (timeout_s > 0)))
        if self._events not in ready:
            return
        while self._events.poll(0):
            event, _ = EVENT.unpack(self._events.recv_multipart()[0])
            if event == _LET_IN:
                self.let_in = True
            elif self.let_in:
                self._gone = True


def join(
    rank: int, local_rank: int, pair: KeyPair, find_address: Callable[[], str], *, within_s: float, timeout_s: float
) -> None:
    """Be a learner rank until rank 0 has no more leases.

    Args:
        rank: of this process.
        local_rank: of this process among those of its host.
        pair: the keys that all ranks have.
        find_address: where rank 0 is now; may wait. Raises what it likes.
        within_s: how long rank 0 may take to let it in, in seconds.
        timeout_s: how long rank 0 may take to answer where no config says otherwise, in seconds.

    Raises:
        RankLostError: rank 0 did not let it in, or is gone.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        address = find_address()
        connection = RankConnection(address, pair)
        try:
            if connection.wait_let_in(LOOK_AGAIN_S):
                serve_leases(connection.line(timeout_s), Here(rank, host_name(), os.getpid()), local_rank=local_rank)
                return
        finally:
            connection.close()
        if time.monotonic() > deadline_s:
            raise RankLostError(
                f"learner rank 0 at {address} did not let this rank in within {within_s:g} s: all ranks need the same "
                "connection file, and must reach that address"
            )
