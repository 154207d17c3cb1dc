"""Rank 0's end of the lines to other processes and hosts: who comes is let in by the ranks' key, and stays."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import zmq

from remuda.config.schema import ExperimentConfig
from remuda.learner.ranks.following import Here
from remuda.learner.ranks.line import HEADER, Line, Message, Part, RankFailedError
from remuda.learner.ranks.network_line import EVENT, GONE, NOBLOCK, Frames, NetworkLine, prepared, received
from remuda.policy.ranks import RankLostError
from remuda.wire.door import ZAP_ADDRESS, Door
from remuda.wire.keys.authorized import Identity
from remuda.wire.keys.pair import KeyPair
from remuda.worker.serve import HopelessError, LastLeaseError

_LOOK_S = 0.2
_SOURCE = int(zmq.SRCFD)
_RANKS = Identity("learner ranks", "worker")


class TooFewRanksError(HopelessError):
    """A run wants more ranks than were started for this learner."""


class RanksGoneError(RankLostError, LastLeaseError):
    """A rank is gone, and only who started all of them can start it again."""


class _SameKey:
    """Lets in whoever shows this key."""

    def __init__(self, public: str) -> None:
        self._public = public

    def who(self, public: str) -> Identity | None:
        return _RANKS if public == self._public else None

    ask = who


class RankServer:
    """A socket that all other ranks of a learner connect to, once. A rank whose connection breaks is lost."""

    def __init__(self, address: str, pair: KeyPair, world_size: int, *, timeout_s: float) -> None:
        """Bind to `address`, such as tcp://0.0.0.0:0. `timeout_s` is how long a rank may be silent where no config says
        otherwise. Raises NoCurveError, and zmq.ZMQError if the address cannot be had."""
        self.world_size = world_size
        self._door = Door(pair, _SameKey(pair.public))
        self._context = zmq.Context()
        self._knocks = self._context.socket(zmq.REP)
        self._knocks.linger = 0
        self._knocks.bind(ZAP_ADDRESS)
        self._socket = self._context.socket(zmq.ROUTER)
        self._door.guard(self._socket)
        prepared(self._socket, address)
        self._socket.router_mandatory = 1  # who is gone is an error instead of silence
        self._events = self._socket.get_monitor_socket(GONE)
        self._poller = zmq.Poller()
        for each in (self._knocks, self._socket, self._events):
            self._poller.register(each, zmq.POLLIN)
        self._ranks: dict[bytes, int] = {}
        """Ranks by their routing id."""
        self._here: dict[int, Here] = {}
        self._descriptors: dict[int, int] = {}
        """Ranks by the descriptor of their connection."""
        self._lost: set[int] = set()
        self._arrived: dict[int, deque[Frames]] = {}
        self._lines = [
            NetworkLine(f"learner rank {rank}", timeout_s, put=partial(self._put, rank), take=partial(self._take, rank))
            for rank in range(1, world_size)
        ]
        try:
            self._socket.bind(address)
        except zmq.ZMQError:
            self.close()
            raise
        self.port = int(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        """Where it is reached."""

    def gather(self, within_s: float) -> str:
        """Wait until all ranks have come; returns who they are, for people. Raises RankLostError."""
        deadline_s = time.monotonic() + within_s
        while len(self._here) < self.world_size - 1:
            self._turn(_LOOK_S)
            if time.monotonic() > deadline_s:
                raise RankLostError(self._who_is_missing(within_s))
        return ", ".join(str(self._here[rank]) for rank in sorted(self._here))

    def lease(self, config: ExperimentConfig) -> Recruited:
        """The ranks for a lease. Raises TooFewRanksError."""
        if config.learner.ranks > self.world_size:
            raise TooFewRanksError(
                f"learner.ranks is {config.learner.ranks}, and this learner was started with {self.world_size} ranks: "
                "set it to that, or start more"
            )
        lines = self._lines[: config.learner.ranks - 1]
        for line in lines:
            line.timeout_s = config.limits.rank_s
        return Recruited(lines, [self._here[rank] for rank in range(1, config.learner.ranks)], self._check)

    def close(self, *, leave: bool = False) -> None:
        """Close the connections; may be called again. With `leave`, the other ranks are told that nothing will come any
        more; without, they have lost rank 0."""
        if self._socket.closed:
            return
        if leave:
            for rank in self._here:
                self._put_or_not(rank, [HEADER.pack(Message.LEAVE, 0)])
        self._socket.disable_monitor()
        self._events.close(linger=0)
        self._socket.close()
        self._knocks.close()
        self._context.term()

    # --- lines ---

    def _put(self, rank: int, frames: Sequence[Part]) -> None:
        peer = next(peer for peer, of in self._ranks.items() if of == rank)
        self._socket.send_multipart([peer, *frames], NOBLOCK)

    def _put_or_not(self, rank: int, frames: Sequence[Part]) -> None:
        try:
            self._put(rank, frames)
        except zmq.ZMQError:
            self._lost.add(rank)

    def _take(self, rank: int, timeout_s: float | None) -> Frames | None:
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        arrived = self._arrived[rank]
        while not arrived:
            if rank in self._lost:
                raise ConnectionResetError
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return None
            self._turn(left_s)
        return arrived.popleft()

    def _check(self) -> None:
        self._turn(0.0)
        for rank in sorted(self._lost):
            raise RanksGoneError(f"{self._lines[rank - 1].far_end} has ended, or its connection is broken")

    # --- inside ---

    def _turn(self, timeout_s: float | None) -> None:
        """Wait for something, at most `timeout_s`, and take it."""
        ready = dict(self._poller.poll(None if timeout_s is None else int(1_000 * timeout_s) + (timeout_s > 0)))
        if self._knocks in ready:
            self._knocks.send_multipart(self._door.answer(self._knocks.recv_multipart()))
        if self._socket in ready:
            while (frames := received(self._socket)) is not None:
                self._note(frames)
        if self._events in ready:
            while self._events.poll(0):
                event, descriptor = EVENT.unpack(self._events.recv_multipart()[0])
                if event == GONE and (rank := self._descriptors.pop(descriptor, None)) is not None:
                    self._lost.add(rank)

    def _note(self, frames: Frames) -> None:
        """Keep a message for the line of its rank. The first one of each says which rank it is."""
        peer = frames.popleft()
        rank = self._ranks.get(peer.bytes)
        if rank is None:
            rank = self._met(peer.bytes, frames)
        if rank is not None:
            self._arrived[rank].append(frames)

    def _met(self, peer: bytes, frames: Frames) -> int | None:
        """Which rank a new peer is; None if it is none, or one that is here already."""
        try:
            here = msgspec.json.decode(frames[1].buffer if len(frames) == 2 else b"", type=Here)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        if not 0 < here.rank < self.world_size or here.rank in self._here:
            return None
        self._ranks[peer], self._here[here.rank], self._arrived[here.rank] = here.rank, here, deque()
        self._descriptors[int(frames[0].get(_SOURCE))] = here.rank
        self._lines[here.rank - 1].far_end = str(here)
        return here.rank

    def _who_is_missing(self, within_s: float) -> str:
        missing = [str(rank) for rank in range(1, self.world_size) if rank not in self._here]
        refused = self._door.refusals.total
        others = f"; {refused} connections were refused, since they showed another key" if refused else ""
        return (
            f"learner rank {', '.join(missing)} did not come within {within_s:g} s: all ranks need the same connection "
            f"file, and must reach port {self.port} of this host{others}"
        )


class Recruited:
    """The ranks of a lease; they outlive it."""

    def __init__(self, lines: Sequence[Line], here: Sequence[Here], check: Callable[[], None]) -> None:
        self.lines = lines
        self._here = here
        self.check = check
        self._open = True

    def describe(self) -> str:
        """See Followers."""
        return ", ".join(f"rank {each.rank}: pid {each.pid} on {each.host}" for each in self._here)

    def explained(self, error: RankLostError) -> RankLostError:
        """See Followers. Who is lost does not come back: this process cannot have ranks any more."""
        return error if isinstance(error, RankFailedError) else RanksGoneError(str(error))

    def close(self) -> None:
        """See Followers: their lease is over."""
        if not self._open:
            return
        self._open = False
        for line in self.lines:
            try:
                line.send(Message.END)
            except RankLostError:
                continue  # the next lease will notice
