"""Serves the page until the end of the parent process."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
import uvicorn
from msgspec import Meta, Struct
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from remuda.coordinator.monitoring.address import BACKLOG_CONNECTIONS
from remuda.page.actions import Actions
from remuda.page.app import RIGHT, Guard, make_app
from remuda.page.coordinator_link import CoordinatorLink
from remuda.page.process import Tokens
from remuda.page.views import Views
from remuda.worker.process import raise_open_files_limit

ACCEPTED_AT_ONCE = 32
"""Connections accepted at once. Several times as many arrive before a new connection is the oldest, and its request has
been read by then."""
_LONGEST_LINE_BYTES = 4_096
_END_S = 1
"""Most seconds until open requests end."""
_MOST_REQUESTS = 256
"""With a token, at the same time; more are answered with 503."""
_Token = Annotated[str, Meta(min_length=20, max_length=200)]


@dataclass
class Connections:
    """Limits of one server, and its open connections."""

    most_open: int = 192
    """Most open connections; a further connection replaces the oldest without a token."""
    first_request_s: float = 10.0
    """Seconds until the first request is complete; without a token, until it is answered."""
    next_request_s: float = 30.0
    """Seconds from an answer to the next request on the same connection, with the same rules."""
    oldest_first: dict[Connection, None] = field(default_factory=dict["Connection", None])

    def protocol(self) -> type[H11Protocol]:
        """Return the class of connections for uvicorn."""

        class ThisConnection(Connection):
            visits = self

        return ThisConnection

    def make_room(self, newest: Connection) -> None:
        """Close one connection above the limit."""
        if len(self.oldest_first) <= self.most_open:
            return
        for visit in self.oldest_first:
            if visit is not newest and not visit.shows_token():
                visit.let_go()
                return


class Connection(H11Protocol):
    """A connection. An answer to a request with a token, possibly an endless stream, keeps the connection open."""

    visits: ClassVar[Connections]
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
        """Return True during an answer to a request with a token."""
        if not self.cycle or not self.cycle.scope.get(RIGHT):
            return False
        return not self.cycle.response_complete or self.transport.get_write_buffer_size() > 0

    def let_go(self) -> None:
        """Close the connection immediately."""
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


class Start(Struct, frozen=True):
    """The line at the start."""

    viewer: _Token
    operator: _Token

    def __repr__(self) -> str:
        """Without the tokens."""
        return "Start(…)"


def main() -> None:
    """Read the arguments, and serve."""
    parser = argparse.ArgumentParser(description="Serve the page of a runs folder.")
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--connection-file", type=Path, default=None, help="of the coordinator, if there is one")
    parser.add_argument("--of-launch", action="store_true", help="the herd ends with the one run it was started for")
    parser.add_argument("--listener", type=int, required=True, help="descriptor of a socket that listens")
    arguments = parser.parse_args()
    start = msgspec.json.decode(sys.stdin.buffer.readline(_LONGEST_LINE_BYTES), type=Start)
    raise_open_files_limit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the parent, which ends this process
    with socket.socket(fileno=arguments.listener) as listener:
        views = Views(arguments.runs_dir, CoordinatorLink(arguments.connection_file), of_launch=arguments.of_launch)
        actions = Actions(views, arguments.connection_file)
        ending = asyncio.Event()
        app = make_app(views, actions, Tokens(start.viewer, start.operator), ending=ending)
        try:
            asyncio.run(_serve(app, listener, ending, actions.close))
        finally:
            actions.close()
            views.close()


class Server(uvicorn.Server):
    """Uvicorn, configured for the page."""

    def __init__(self, app: ASGIApp, visits: Connections) -> None:
        config = uvicorn.Config(
            app,
            http=visits.protocol(),
            log_level="error",  # strangers could fill a log with warnings
            access_log=False,  # readers of logs need not know the visited views
            server_header=False,
            date_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            backlog=ACCEPTED_AT_ONCE,
            limit_concurrency=_MOST_REQUESTS,
            timeout_keep_alive=math.ceil(visits.next_request_s),
            timeout_graceful_shutdown=_END_S,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start like the base class, with a longer backlog than the connections accepted at once."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG_CONNECTIONS)


async def _serve(app: Guard, listener: socket.socket, ending: asyncio.Event, break_off: Callable[[], None]) -> None:
    """Serve until the end of the parent. Then stop listening, so that the next page gets the port; set `ending`; and
    call `break_off` in a thread, since running work, for instance a submission, may outlast the patience of the parent.
    """
    server, loop = Server(app, Connections()), asyncio.get_running_loop()

    def parent_has_ended() -> None:
        if not os.read(sys.stdin.fileno(), _LONGEST_LINE_BYTES):
            loop.remove_reader(sys.stdin.fileno())
            ending.set()
            threading.Thread(target=break_off, name="remuda-page-end", daemon=True).start()
            server.should_exit = True

    loop.add_reader(sys.stdin.fileno(), parent_has_ended)
    await server.serve(sockets=[listener])
