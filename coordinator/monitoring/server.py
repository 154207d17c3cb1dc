"""Serves a few pages to whoever connects, with a bound on everything that a stranger can make it hold or wait for."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from remuda.coordinator.monitoring.address import BACKLOG_CONNECTIONS

END_OF_HEAD = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,2048}) HTTP/1\.[01]\r\n")
_PLAIN = "text/plain; charset=utf-8"
MOST_CONNECTIONS = 32
"""At the same time. One more takes the place of the oldest, so that slow readers keep nobody out."""
ACCEPTED_AT_ONCE = 8
"""So few that several times as many come before a new connection is the oldest: its request is read by then."""
MOST_REQUEST_BYTES = 8 << 10
"""Of a request's first line and headers."""
DEADLINE_S = 5.0
"""From a connection's beginning to its end, whatever is left to be read or sent then."""


@dataclass(frozen=True)
class Page:
    """What is served at a path."""

    status: HTTPStatus
    content_type: str
    body: bytes


def answer(head: bytes, pages: Mapping[str, Callable[[], Page]]) -> bytes:
    """The answer to a request. `head` ends with END_OF_HEAD; a body that follows it is not read.

    Only GET and HEAD are known; what follows a question mark in the path is ignored.
    """
    line = _REQUEST_LINE.match(head)
    if line is None:
        return failure(HTTPStatus.BAD_REQUEST)
    method, path = line[1], line[2].partition(b"?")[0].decode("ascii")
    make = pages.get(path)
    if make is None:
        return failure(HTTPStatus.NOT_FOUND)
    if method not in (b"GET", b"HEAD"):
        return failure(HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET, HEAD\r\n")
    return _encoded(make(), with_body=method == b"GET")


def failure(status: HTTPStatus, headers: str = "") -> bytes:
    """An answer that says no more than what is wrong with the request."""
    return _encoded(Page(status, _PLAIN, f"{status.phrase}\n".encode()), headers=headers)


def _encoded(page: Page, *, with_body: bool = True, headers: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        f"{headers}"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + (page.body if with_body else b"")


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
