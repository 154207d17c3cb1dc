"""Who is let in at a coordinator's socket: answers what ZeroMQ asks about each new connection (ZAP, its RFC 27)."""

from __future__ import annotations

from typing import Literal, Protocol

import zmq
from msgspec.structs import asdict

from remuda.wire.keys.authorized import Identity
from remuda.wire.keys.pair import KeyPair, require_curve
from remuda.wire.messages import RefusalCounts

DOMAIN = b"remuda"
ZAP_ADDRESS = "inproc://zeromq.zap.01"
_VERSION = b"1.0"
_KEY_BYTES = 32
_FRAMES = 7
"""Version, number of the request, domain, the other end's address, routing id, mechanism, public key."""
ReasonRefused = Literal["unknown_key", "no_key", "revoked_key", "forbidden", "taken_identity"]
"""See RefusalCounts."""


class Refusals:
    """How often somebody was refused, by reason, and what is to be said about it."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._elsewhere = RefusalCounts()
        self._last = ""
        self._said = 0

    def note(self, reason: ReasonRefused, whom: str) -> None:
        """Count one; `whom` is for the log, and must hold nothing that a stranger chose freely."""
        self._counts[reason] = self._counts.get(reason, 0) + 1
        self._last = f"{reason.replace('_', ' ')}: {whom}"

    def note_elsewhere(self, counts: RefusalCounts) -> None:
        """Those that another process has counted, and has told of in its own log."""
        self._elsewhere = counts

    @property
    def counts(self) -> RefusalCounts:
        """All of them since the start, those of other processes included."""
        return added(RefusalCounts(**self._counts), self._elsewhere)

    @property
    def total(self) -> int:
        """All reasons together, of this process alone."""
        return sum(self._counts.values())

    def news(self) -> str | None:
        """A line for the log about those since the last call; None if there are none."""
        since, self._said = self.total - self._said, self.total
        if not since:
            return None
        return f"refused {since} {'time' if since == 1 else 'times'} ({self.total} in all); the last: {self._last}"


def added(one: RefusalCounts, other: RefusalCounts) -> RefusalCounts:
    """Both together, reason by reason."""
    more = asdict(other)
    return RefusalCounts(**{reason: count + more[reason] for reason, count in asdict(one).items()})


class Authorized(Protocol):
    """Knows who is let in."""

    def who(self, public: str) -> Identity | None:
        """The identity of a public key; None if nobody with this key is let in. Asked for every message."""
        ...

    def ask(self, public: str) -> Identity | None:
        """The same, for a new connection; may take longer."""
        ...


class Door:
    """The coordinator's key, whom it lets in, and how often it did not. Opens no socket."""

    def __init__(self, server: KeyPair, authorized: Authorized) -> None:
        """Raises NoCurveError."""
        require_curve()
        self.server = server
        self.who = authorized.who
        self._ask = authorized.ask
        self.refusals = Refusals()

    def guard(self, socket: zmq.Socket[bytes]) -> None:
        """Let this socket, before it is bound, speak to nobody whom `answer` does not let in."""
        socket.curve_server = 1
        socket.curve_secretkey = self.server.secret
        socket.zap_domain = DOMAIN
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without it, nobody is asked about while nobody answers

    def answer(self, request: list[bytes]) -> list[bytes]:
        """The answer to a request of ZeroMQ. A known key passes, and its public key is its user id on every message."""
        number = request[1] if len(request) > 1 else b""
        if len(request) != _FRAMES or request[0] != _VERSION or request[2] != DOMAIN or len(request[6]) != _KEY_BYTES:
            self.refusals.note("no_key", "a connection that shows no key")
            return [_VERSION, number, b"400", b"no key", b"", b""]
        public = request[6].hex()
        if self._ask(public) is None:
            self.refusals.note("unknown_key", f"{public} from {_address(request[3])}")
            return [_VERSION, number, b"400", b"unknown key", b"", b""]
        return [_VERSION, number, b"200", b"", public.encode(), b""]


def _address(text: bytes) -> str:
    """An IP address as ZeroMQ tells it."""
    address = text.decode("ascii", errors="replace")
    return address if address.isprintable() and len(address) <= 64 else "an address that is no text"
