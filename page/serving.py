"""Serves the page, until the process that started this one ends.

Its standard input is a pipe from that process: first one line with the tokens, which must not be in a command line that
others can see; then nothing, and its end means the end.
"""

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
from pathlib import Path
from typing import Annotated

import msgspec
import uvicorn
from msgspec import Meta, Struct
from starlette.types import ASGIApp

from remuda.coordinator.monitoring.address import BACKLOG_CONNECTIONS
from remuda.page.actions import Actions
from remuda.page.app import make_app
from remuda.page.coordinator_link import CoordinatorLink
from remuda.page.guard import Guard
from remuda.page.tokens import Tokens
from remuda.page.views import Views
from remuda.page.visits import ACCEPTED_AT_ONCE, Visits
from remuda.worker import descriptors

_LONGEST_LINE_BYTES = 4_096
_END_S = 1
"""How long open requests may take to end."""
_MOST_REQUESTS = 256
"""With a token, at the same time; more are answered with 503."""
_Token = Annotated[str, Meta(min_length=20, max_length=200)]


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
    descriptors.raise_limit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the process that started this one, which ends it
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
    """Uvicorn, with what the page needs of it."""

    def __init__(self, app: ASGIApp, visits: Visits) -> None:
        config = uvicorn.Config(
            app,
            http=visits.protocol(),
            log_level="error",  # strangers could fill a log with warnings of what they send
            access_log=False,  # whoever reads logs needs not know what was looked at
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
        """See the base, which lets no more connections wait than it accepts at once."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG_CONNECTIONS)


async def _serve(app: Guard, listener: socket.socket, ending: asyncio.Event, break_off: Callable[[], None]) -> None:
    """Serve until the parent has ended. Then listen no more, so that the next page can have the port; set `ending`; and
    call `break_off` in a thread: what goes on, such as a submission, may take longer than the parent waits."""
    server, loop = Server(app, Visits()), asyncio.get_running_loop()

    def parent_has_ended() -> None:
        if not os.read(sys.stdin.fileno(), _LONGEST_LINE_BYTES):
            loop.remove_reader(sys.stdin.fileno())
            ending.set()
            threading.Thread(target=break_off, name="remuda-page-end", daemon=True).start()
            server.should_exit = True

    loop.add_reader(sys.stdin.fileno(), parent_has_ended)
    await server.serve(sockets=[listener])
