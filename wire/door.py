"""Access to a coordinator's socket: answers ZeroMQ's questions about new connections (ZAP, its RFC 27)."""

from __future__ import annotations

from typing import Literal

import zmq
from msgspec.structs import asdict

from remuda.wire.keys.authorized import Authorized
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
    """Counts of refusals by reason, and log lines about them."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._elsewhere = RefusalCounts()
        self._last = ""
        self._said = 0

    def note(self, reason: ReasonRefused, whom: str) -> None:
        """Count one refusal; `whom` is for the log, and must hold no text that a stranger chose freely."""
        self._counts[reason] = self._counts.get(reason, 0) + 1
        self._last = f"{reason.replace('_', ' ')}: {whom}"

    def note_elsewhere(self, counts: RefusalCounts) -> None:
        """Note refusals that another process has counted and logged."""
        self._elsewhere = counts

    @property
    def counts(self) -> RefusalCounts:
        """All refusals since the start, including other processes."""
        return added(RefusalCounts(**self._counts), self._elsewhere)

    @property
    def total(self) -> int:
        """All reasons together, of this process alone."""
        return sum(self._counts.values())

    def news(self) -> str | None:
        """Return a log line about refusals since the last call; None without new refusals."""
        since, self._said = self.total - self._said, self.total
        if not since:
            return None
        return f"refused {since} {'time' if since == 1 else 'times'} ({self.total} in all); the last: {self._last}"


def added(one: RefusalCounts, other: RefusalCounts) -> RefusalCounts:
    """Both together, reason by reason."""
    more = asdict(other)
    return RefusalCounts(**{reason: count + more[reason] for reason, count in asdict(one).items()})


class Door:
    """The coordinator's key, the authorized keys, and counts of refusals. Opens no socket."""

    def __init__(self, server: KeyPair, authorized: Authorized) -> None:
        """Raises NoCurveError."""
        require_curve()
        self.server = server
        self.who = authorized.who
        self._ask = authorized.ask
        self.refusals = Refusals()

    def guard(self, socket: zmq.Socket[bytes]) -> None:
        """Restrict a socket, before binding, to peers that `answer` accepts."""
        socket.curve_server = 1
        socket.curve_secretkey = self.server.secret
        socket.zap_domain = DOMAIN
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without it, nobody is asked about while nobody answers

    def answer(self, request: list[bytes]) -> list[bytes]:
        """Return the answer to a request of ZeroMQ. A known key passes, and becomes the user id of every message."""
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
    """Return an IP address from ZeroMQ as text."""
    address = text.decode("ascii", errors="replace")
    return address if address.isprintable() and len(address) <= 64 else "an address that is no text"
