"""Connections to the page: those that wait without a token make room for newer ones, and have little time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from remuda.page.guard import RIGHT

ACCEPTED_AT_ONCE = 32
"""So few that several times as many come before a new connection is the oldest: its request is read by then."""


@dataclass
class Visits:
    """The limits of one server, and its open connections."""

    most_open: int = 192
    """One more takes the place of the oldest of those that have no token in their request."""
    first_request_s: float = 10.0
    """From a connection's beginning until its first request is whole; without a token, until it is answered."""
    next_request_s: float = 30.0
    """The same, from one answer to the next: how long a connection is kept for a next request."""
    oldest_first: dict[Visit, None] = field(default_factory=dict["Visit", None])

    def protocol(self) -> type[H11Protocol]:
        """What uvicorn makes for each connection."""

        class OneOfThese(Visit):
            visits = self

        return OneOfThese

    def make_room(self, newest: Visit) -> None:
        """Close one connection if there are too many."""
        if len(self.oldest_first) <= self.most_open:
            return
        for visit in self.oldest_first:
            if visit is not newest and not visit.shows_token():
                visit.let_go()
                return


class Visit(H11Protocol):
    """One connection. It stays as long as an answer to a request with a token takes, which may be an endless stream."""

    visits: ClassVar[Visits]
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self._wait(self.visits.first_request_s)
        self.visits.make_room(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._forget()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if self in self.visits.oldest_first:
            self._wait(self.visits.next_request_s)

    def shows_token(self) -> bool:
        """Whether an answer to a request with a token is being made or sent."""
        if not self.cycle or not self.cycle.scope.get(RIGHT):
            return False
        return not self.cycle.response_complete or self.transport.get_write_buffer_size() > 0

    def let_go(self) -> None:
        """Close it, whatever is on its way."""
        self._forget()
        self.transport.abort()

    def _wait(self, limit_s: float) -> None:
        self._forget()
        self.visits.oldest_first[self] = None
        self._deadline = self.loop.call_later(limit_s, self._time_is_over)

    def _time_is_over(self) -> None:
        if not self.shows_token():
            self.let_go()

    def _forget(self) -> None:
        self.visits.oldest_first.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
