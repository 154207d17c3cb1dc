"""Serves a few pages to whoever connects, with a bound on everything that a stranger can make it hold or wait for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus

from remuda.coordinator.monitoring.address import BACKLOG_CONNECTIONS
from remuda.coordinator.monitoring.exchange import END_OF_HEAD, Page, answer, failure

MOST_CONNECTIONS = 32
"""At the same time. One more takes the place of the oldest, so that slow readers keep nobody out."""
ACCEPTED_AT_ONCE = 8
"""So few that several times as many come before a new connection is the oldest: its request is read by then."""
MOST_REQUEST_BYTES = 8 << 10
"""Of a request's first line and headers."""
DEADLINE_S = 5.0
"""From a connection's beginning to its end, whatever is left to be read or sent then."""


class Server:
    """Answers one request on each connection."""

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Page]],
        *,
        most_connections: int = MOST_CONNECTIONS,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """`pages` are made by path, each time that somebody asks."""
        self._pages = pages
        self._most_connections = most_connections
        self._deadline_s = deadline_s
        self._open: dict[asyncio.StreamWriter, None] = {}
        """The oldest first."""

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    async def serve(self, listener: socket.socket) -> asyncio.Server:
        """Begin to serve."""
        served = await asyncio.start_server(
            self._connected, sock=listener, limit=MOST_REQUEST_BYTES, backlog=ACCEPTED_AT_ONCE
        )
        listener.listen(BACKLOG_CONNECTIONS)  # asyncio lets no more connections wait than it accepts at once
        return served

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while len(self._open) >= self._most_connections:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        try:
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(self._deadline_s):
                    await self._exchange(reader, writer)
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(END_OF_HEAD)
        except asyncio.IncompleteReadError:
            return  # it went before it had asked for anything
        except asyncio.LimitOverrunError:
            writer.write(failure(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        else:
            writer.write(answer(head, self._pages))
        writer.close()
        await writer.wait_closed()
