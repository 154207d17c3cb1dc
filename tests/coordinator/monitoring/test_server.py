"""The server: many hostile connections at once take neither its memory nor anybody's turn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from remuda.coordinator.monitoring.address import listen
from remuda.coordinator.monitoring.exchange import Page
from remuda.coordinator.monitoring.server import MOST_CONNECTIONS, MOST_REQUEST_BYTES, Server
from remuda.tests.patience import HANG_S

LARGE = bytes(32 << 20)
"""More than the operating system's buffers of a connection take."""
PAGES = {
    "/small": lambda: Page(HTTPStatus.OK, "text/plain", b"well\n"),
    "/large": lambda: Page(HTTPStatus.OK, "text/plain", LARGE),
}
SMALL = b"GET /small HTTP/1.1\r\n\r\n"
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


def test_it_answers_and_hangs_up() -> None:
    async def test(server: Server, connect: Connect) -> None:
        for _ in range(20):
            assert (await asked(connect)).endswith(b"\r\n\r\nwell\n")
        await until(lambda: server.connections == 0)

    served(test)


def test_a_request_may_come_in_pieces() -> None:
    async def test(server: Server, connect: Connect) -> None:
        reader, writer = await connect()
        for byte in SMALL:
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await reader.read()).endswith(b"well\n")

    served(test)


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


def test_one_that_sends_nothing_is_let_go_at_its_deadline() -> None:
    async def test(server: Server, connect: Connect) -> None:
        reader, _ = await connect()
        assert await reader.read() == b""
        await until(lambda: server.connections == 0)

    served(test, deadline_s=0.05)


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


def test_one_that_came_amid_many_is_answered() -> None:
    waiting: list[socket.socket] = []

    def before(port: int) -> None:
        for number in range(200):
            waiting.append(socket.create_connection(("127.0.0.1", port), timeout=HANG_S))
            if number == 50:
                waiting[number].sendall(SMALL)
                waiting[number].setblocking(False)

    async def test(server: Server, connect: Connect) -> None:
        assert b" 200 " in await asyncio.get_running_loop().sock_recv(waiting[50], 1_000)

    try:
        served(test, most=MOST_CONNECTIONS, before=before)
    finally:
        for each in waiting:
            each.close()


def test_one_that_goes_in_the_middle_is_forgotten() -> None:
    async def test(server: Server, connect: Connect) -> None:
        _, writer = await connect()
        writer.write(b"GET /sm")
        await until(lambda: server.connections == 1)
        writer.transport.abort()
        await until(lambda: server.connections == 0)
        assert (await asked(connect)).endswith(b"well\n"), "others are answered"

    served(test)
