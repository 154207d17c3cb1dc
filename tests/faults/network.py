"""Networks between workers and their coordinator that are worse than loopback.

Workers find them by a connection file of their own, which `Herd.coordinator` keeps in step with the real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from remuda.tests.patience import HANG_S
from remuda.wire.connection_file import ConnectionFile

RESET = struct.pack("ii", 1, 0)
"""As SO_LINGER: closing sends a reset."""


class Between(ABC):
    """Something that workers connect to and that connects to the coordinator. A context manager with a thread."""

    def __init__(self) -> None:
        self.address = ""
        """Where workers connect to."""
        self.target = ""
        """Where the coordinator listens; may change while it runs."""

        self._over = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(HANG_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(HANG_S)

    def stand_before(self, connection: ConnectionFile, folder: Path) -> ConnectionFile:
        """Lie between workers and this coordinator from now on; returns the connection file for the workers. `folder`
        is for keys of its own."""
        self.target = connection.address
        return replace(connection, address=self.address)

    @abstractmethod
    def _run(self) -> None:
        """In the thread, until `_over`."""


@dataclass(eq=False)
class _Pipe:
    """One connection through the network."""

    writers: list[asyncio.StreamWriter] = field(default_factory=list[asyncio.StreamWriter])
    swallowing: bool = False


class Unreliable(Between):
    """TCP that is late, breaks off, goes silent without a word, and is cut altogether for a while."""

    def __init__(self, *, seed: int, latest_s: float, mean_s: float, partition_s: float) -> None:
        """Every piece is up to `latest_s` late; every `mean_s` on average something goes wrong, and a third of that
        is that nothing passes for `partition_s`."""
        super().__init__()
        self._chance = random.Random(seed)
        self._latest_s = latest_s
        self._mean_s = mean_s
        self._partition_s = partition_s
        self._pipes: set[_Pipe] = set()
        self._healed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.faults = {"reset": 0, "gone silent": 0, "cut": 0}
        self.connections = 0

    @contextlib.contextmanager
    def gone(self) -> Generator[None]:
        """Nothing passes meanwhile."""
        self._in_its_thread(self._healed.clear)
        yield
        self._in_its_thread(self._healed.set)

    def break_some(self) -> None:
        """Every other connection is reset, and the others go silent."""

        def break_them() -> None:
            for number, pipe in enumerate([*self._pipes]):
                if number % 2:
                    pipe.swallowing = True
                else:
                    self._end(pipe)

        self._in_its_thread(break_them)

    def _in_its_thread(self, do: Callable[[], object]) -> None:
        assert self._loop is not None, "it runs"
        self._loop.call_soon_threadsafe(do)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._healed.set()
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        tasks = [asyncio.create_task(self._misbehave())]
        while not self._over.is_set():
            await asyncio.sleep(0.05)
        server.close()
        for task in [*tasks, *(task for task in asyncio.all_tasks() if task is not asyncio.current_task())]:
            task.cancel()
        for pipe in [*self._pipes]:
            self._end(pipe)
        await asyncio.sleep(0.1)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pipe = _Pipe([writer])
        self.connections += 1
        try:
            host, port = self.target.removeprefix("tcp://").rsplit(":", 1)
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            pipe.writers.append(far_writer)
            self._pipes.add(pipe)
            await asyncio.gather(self._pump(pipe, reader, far_writer), self._pump(pipe, far_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._end(pipe)

    async def _pump(self, pipe: _Pipe, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await asyncio.sleep(self._chance.random() * self._latest_s)
            await self._healed.wait()
            if not pipe.swallowing:
                writer.write(data)
                await writer.drain()
        raise ConnectionResetError

    async def _misbehave(self) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / self._mean_s))
            what = self._chance.choice(tuple(self.faults))
            self.faults[what] += 1
            pipe = self._chance.choice([*self._pipes]) if self._pipes else _Pipe()
            if what == "reset":
                self._end(pipe)
            elif what == "gone silent":
                pipe.swallowing = True
            else:
                self._healed.clear()
                await asyncio.sleep(self._partition_s)
                self._healed.set()

    def _end(self, pipe: _Pipe) -> None:
        self._pipes.discard(pipe)
        for writer in pipe.writers:
            found = writer.get_extra_info("socket")
            if found is not None and found.fileno() >= 0:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.close()
