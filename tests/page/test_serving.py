"""Connections to the page: strangers that wait, send slowly or do not read keep out nobody with a token."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

pytest.importorskip("uvicorn")
from starlette.types import Receive, Scope, Send

from remuda.coordinator.monitoring.address import listen
from remuda.page.app import Guard
from remuda.page.process import Tokens
from remuda.page.serving import Connections, Server
from remuda.tests.patience import HANG_S

TOKENS = Tokens.fresh()
HEAD = b"GET /api/%s HTTP/1.1\r\nHost: page\r\nAuthorization: Bearer " + TOKENS.viewer.encode() + b"\r\n\r\n"
SHORT, ENDLESS = HEAD % b"short", HEAD % b"endless"
LARGE = bytes(32 << 20)
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Stream]]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with a word; `/api/endless` never ends; `/large` is more than buffers hold."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    body = LARGE if scope["path"].endswith("large") else b"word"
    endless = scope["path"] == "/api/endless"
    await send({"type": "http.response.body", "body": body, "more_body": endless})
    while endless and (await receive())["type"] != "http.disconnect":
        pass


def served(
    test: Callable[[Server, Connect], Awaitable[None]],
    visits: Connections | None = None,
    *,
    before: Callable[[int], None] = lambda port: None,
) -> None:
    """Run `test` with a server and a function that connects to it; `before` is called while nothing is accepted."""

    async def run() -> None:
        opened: list[asyncio.StreamWriter] = []
        with listen("0") as listener:
            port = listener.getsockname()[1]
            before(port)
            server = Server(Guard(app, TOKENS), visits or Connections())
            serving = asyncio.create_task(server.serve([listener]))

            async def connect() -> Stream:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                opened.append(writer)
                return reader, writer

            try:
                async with asyncio.timeout(HANG_S):
                    await test(server, connect)
            finally:
                for writer in opened:
                    writer.transport.abort()
                server.should_exit = True
                await serving

    asyncio.run(run())


async def answer(stream: Stream, request: bytes = SHORT) -> bytes:
    """The status line and headers of the answer."""
    reader, writer = stream
    writer.write(request)
    return await reader.readuntil(b"\r\n\r\n")


async def ended(reader: asyncio.StreamReader) -> None:
    """Returns once the server has closed the connection."""
    try:
        while await reader.read(1 << 20):
            pass
    except ConnectionError:
        pass


def connections(server: Server) -> int:
    return len(server.server_state.connections)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # `served` has the limit
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\nHost: pa"], ids=["idle", "half open"])
def test_many_that_ask_for_nothing_make_room(first: bytes) -> None:
    async def test(server: Server, connect: Connect) -> None:
        endless = await connect()
        assert b" 200 " in await answer(endless, ENDLESS)
        for _ in range(2 * Connections.most_open):
            _, writer = await connect()
            writer.write(first)
        assert b" 200 " in await answer(await connect())
        await until(lambda: connections(server) <= Connections.most_open)
        assert not endless[0].at_eof(), "who has a token stays"

    served(test)


def test_one_that_came_amid_many_is_answered() -> None:
    waiting: list[socket.socket] = []

    def before(port: int) -> None:
        for number in range(400):
            waiting.append(socket.create_connection(("127.0.0.1", port), timeout=HANG_S))
            if number == 50:
                waiting[number].sendall(SHORT)
                waiting[number].setblocking(False)

    async def test(server: Server, connect: Connect) -> None:
        assert b" 200 " in await asyncio.get_running_loop().sock_recv(waiting[50], 1_000)

    try:
        served(test, Connections(first_request_s=HANG_S), before=before)
    finally:
        for each in waiting:
            each.close()


@pytest.mark.parametrize("begun", [b"GET /", b"POST /api/x HTTP/1.1\r\nHost: page\r\nContent-Length: 9000\r\n\r\n"])
def test_a_request_that_comes_byte_by_byte_is_not_waited_for(begun: bytes) -> None:
    """Not in its headers, and not in its body, of which nothing is read without a token."""

    async def test(server: Server, connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(begun)
        end = asyncio.create_task(ended(reader))
        while not end.done():
            writer.write(b"x")
            await asyncio.sleep(0.005)
        await until(lambda: connections(server) == 0)
        assert not connections(server)

    served(test, Connections(first_request_s=0.1, next_request_s=0.1))


def test_a_stranger_that_does_not_read_is_let_go() -> None:
    async def test(server: Server, connect: Connect) -> None:
        _, writer = await connect()  # its reader takes no more than 128 KiB unasked
        writer.write(b"GET /large HTTP/1.1\r\nHost: page\r\n\r\n")
        await until(lambda: server.server_state.total_requests == 1)
        await until(lambda: connections(server) == 0)
        assert b" 200 " in await answer(await connect()), "others are still served"

    served(test, Connections(first_request_s=0.5, next_request_s=0.5))


@pytest.mark.parametrize("path", [b"endless", b"large"])
def test_an_answer_to_a_token_may_take_longer(path: bytes) -> None:
    """To be made, and to be read."""

    async def test(server: Server, connect: Connect) -> None:
        streams: list[Stream] = []
        while not streams:  # again, if this machine stood still for as long as the limit
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                stream = await connect()
                assert b" 200 " in await answer(stream, HEAD % path)
                streams.append(stream)
        stranger, _ = await connect()  # has as much time, later
        await ended(stranger)
        assert connections(server) == 1
        if path == b"large":
            await streams[0][0].readexactly(len(LARGE))

    served(test, Connections(first_request_s=0.2, next_request_s=0.2))
