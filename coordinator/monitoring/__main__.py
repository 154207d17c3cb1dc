"""`python -m remuda.coordinator.monitoring`: the process that serves `/health` and `/metrics` of a coordinator.

The process knows only the snapshots of the coordinator's loop: no key, no run folder, no connection to the herd. The
end of the coordinator breaks the pipe and ends the process. The server bounds memory and waiting time per client.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from remuda.coordinator.monitoring.address import BACKLOG_CONNECTIONS
from remuda.coordinator.monitoring.process import LENGTH_BYTES
from remuda.coordinator.monitoring.snapshot import CONTENT_TYPE, Snapshot, exposition_text, families, health

END_OF_HEAD = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,2048}) HTTP/1\.[01]\r\n")
_PLAIN = "text/plain; charset=utf-8"
MOST_CONNECTIONS = 32
"""Maximum number of open connections. A new connection then closes the oldest, so slow readers keep no client out."""
ACCEPTED_AT_ONCE = 8
"""Few enough that a new connection's request is read long before the connection is the oldest."""
MOST_REQUEST_BYTES = 8 << 10
"""Of a request's first line and headers."""
DEADLINE_S = 5.0
"""Maximum lifetime of a connection."""


class Pages:
    """Makes both pages from the newest snapshot."""

    def __init__(self) -> None:
        self.newest: Snapshot | None = None

    def health(self) -> Page:
        """200 if the coordinator is well, otherwise 503."""
        found = health(self.newest, time.monotonic())
        status = HTTPStatus.OK if found.is_well else HTTPStatus.SERVICE_UNAVAILABLE
        return Page(status, "application/json", msgspec.json.encode(found) + b"\n")

    def metrics(self) -> Page:
        """All metrics."""
        text = exposition_text(families(self.newest, time.monotonic()))
        return Page(HTTPStatus.OK, CONTENT_TYPE, text.encode())


async def _serve(listener: socket.socket, snapshots: socket.socket) -> None:
    pages = Pages()
    server = Server({"/health": pages.health, "/metrics": pages.metrics})
    reader, writer = await asyncio.open_connection(sock=snapshots)
    async with await server.serve(listener):
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(LENGTH_BYTES))
                pages.newest = msgspec.json.decode(await reader.readexactly(length), type=Snapshot)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the coordinator has ended
        finally:
            writer.transport.abort()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Serve the health and the metrics of a coordinator.")
    parser.add_argument("--listener", type=int, required=True, help="descriptor of a socket that listens")
    parser.add_argument("--snapshots", type=int, required=True, help="descriptor that the coordinator writes to")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the coordinator, which drains and is still asked for
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=arguments.listener) as listener, socket.socket(fileno=arguments.snapshots) as snapshots:
        asyncio.run(_serve(listener, snapshots))


@dataclass(frozen=True)
class Page:
    """The response at a path."""

    status: HTTPStatus
    content_type: str
    body: bytes


def answer(head: bytes, pages: Mapping[str, Callable[[], Page]]) -> bytes:
    """Return the response to a request. `head` ends with END_OF_HEAD; a following body is not read.

    Knows only GET and HEAD; ignores the query after a question mark.
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
    """Return a response with nothing but an error status."""
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
    """Answers a single request on each connection."""

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Page]],
        *,
        most_connections: int = MOST_CONNECTIONS,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """`pages`: functions by path, called for every request."""
        self._pages = pages
        self._most_connections = most_connections
        self._deadline_s = deadline_s
        self._open: dict[asyncio.StreamWriter, None] = {}
        """The oldest first."""

    @property
    def connections(self) -> int:
        """Number of open connections."""
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


if __name__ == "__main__":
    main()
