"""The server: many hostile connections at once take neither its memory nor anybody's turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.coordinator.monitoring.__main__ import END_OF_HEAD, MOST_REQUEST_BYTES, Page, Server, answer
from remuda.coordinator.monitoring.address import listen
from remuda.tests.patience import HANG_S

LARGE = bytes(32 << 20)
"""More than the operating system's buffers of a connection take."""
PAGES = {
    "/health": lambda: Page(HTTPStatus.SERVICE_UNAVAILABLE, "application/json", b"{}\n"),
    "/small": lambda: Page(HTTPStatus.OK, "text/plain", b"well\n"),
    "/large": lambda: Page(HTTPStatus.OK, "text/plain", LARGE),
}
SMALL = b"GET /small HTTP/1.1\r\n\r\n"


def ask(line: bytes, headers: bytes = b"") -> tuple[int, bytes]:
    """Status and body."""
    head, _, body = answer(line + b"\r\n" + headers + b"\r\n", PAGES).partition(END_OF_HEAD)
    return int(head.split()[1]), body


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
def test_a_page_with_its_status(version: bytes) -> None:
    assert ask(b"GET /health " + version, b"Host: here\r\nX: y\r\n") == (503, b"{}\n")


def test_another_method_is_told_which_there_are() -> None:
    assert ask(b"POST /health HTTP/1.1", b"Content-Length: 5\r\n")[0] == 405
    assert b"\r\nAllow: GET, HEAD\r\n" in answer(b"DELETE /health HTTP/1.1\r\n\r\n", PAGES)


@pytest.mark.parametrize("path", [b"/", b"/healthy", b"/health/", b"/../etc/passwd", b"/%2e%2e/health", b"//health"])
def test_no_other_path_leads_anywhere(path: bytes) -> None:
    assert ask(b"GET " + path + b" HTTP/1.1") == (404, b"Not Found\n")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET /health HTTP/2.0",
        b"GET http://here/health HTTP/1.1",
        b"GET /health\x00 HTTP/1.1",
        b"GET /" + 3_000 * b"a" + b" HTTP/1.1",
        b"\x16\x03\x01\x02\x00\x01\x00",  # somebody speaks TLS
        b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f",  # somebody speaks ZeroMQ
    ],
)
def test_what_is_no_request_is_answered_with_400(line: bytes) -> None:
    assert ask(line) == (400, b"Bad Request\n")


@given(st.binary(max_size=300))
def test_nothing_that_is_sent_raises_or_comes_back(head: bytes) -> None:
    status, body = ask(b"\x7f" + head)
    assert (status, body) == (400, b"Bad Request\n")


Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def served(
    test: Callable[[Server, Connect], Awaitable[None]],
    *,
    most: int = 4,
    deadline_s: float = HANG_S,
    before: Callable[[int], None] = lambda port: None,
) -> None:
    """Run `test` with a server, and a function that connects to it; `before` is called while nothing is accepted."""

    async def run() -> None:
        server, listener = Server(PAGES, most_connections=most, deadline_s=deadline_s), listen("0")
        port = listener.getsockname()[1]
        before(port)
        opened: list[asyncio.StreamWriter] = []

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            opened.append(writer)
            return reader, writer

        async with asyncio.timeout(HANG_S), await server.serve(listener):
            try:
                await test(server, connect)
            finally:
                for writer in opened:
                    writer.transport.abort()

    asyncio.run(run())


async def asked(connect: Connect, request: bytes = SMALL) -> bytes:
    """The whole answer on a connection of its own; empty if there is none."""
    reader, writer = await connect()
    writer.write(request)
    return await rest(reader)


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What still comes until the connection is closed; nothing if it is broken off."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # `served` has the limit
        await asyncio.sleep(0.01)


def test_headers_without_an_end_are_not_kept() -> None:
    async def test(server: Server, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(b"GET /small HTTP/1.1\r\n")
        sent = 0
        try:
            while sent < 100 * MOST_REQUEST_BYTES:
                writer.write(b"X: " + 1_000 * b"x" + b"\r\n")
                await writer.drain()
                sent += 1_005
            answer = await reader.read()
        except ConnectionError:
            answer = b""
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
        await until(lambda: server.connections == 0)
        assert (await asked(connect)).endswith(b"well\n")

    served(test)


def test_one_that_sends_a_byte_now_and_then_is_let_go_as_well() -> None:
    async def test(server: Server, connect: Connect) -> None:
        reader, writer = await connect()
        await until(lambda: server.connections == 1)
        while server.connections:
            writer.write(b"G")
            await asyncio.sleep(0.005)
        assert await rest(reader) == b"", "it is not answered, and its connection is closed"

    served(test, deadline_s=0.1)


def test_one_that_does_not_read_is_let_go() -> None:
    async def test(server: Server, connect: Connect) -> None:
        reader, writer = await connect()  # its reader takes no more than 128 KiB unasked
        writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        await until(lambda: server.connections == 1)
        await until(lambda: server.connections == 0)
        assert len(await rest(reader)) < len(LARGE), "the answer was cut off"

    served(test, deadline_s=0.5)


def test_the_oldest_makes_room_so_that_nobody_is_kept_out() -> None:
    async def test(server: Server, connect: Connect) -> None:
        for _ in range(200):
            await connect()
            assert server.connections <= 4
        await until(lambda: server.connections == 4)
        assert (await asked(connect)).endswith(b"well\n")

    served(test)
