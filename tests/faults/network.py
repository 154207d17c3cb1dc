"""Networks between workers and their coordinator that are worse than loopback.

Workers find them by a connection file of their own, which `Herd.coordinator` keeps in step with the real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import zmq
from msgspec.structs import replace

from remuda.storage.existing_folder import make_private
from remuda.tests.patience import HANG_S
from remuda.wire.channel import Channel
from remuda.wire.codec import decode, encode
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.keys.folder import SERVER
from remuda.wire.keys.own import CallerKeys, caller_keys
from remuda.wire.keys.pair import new_pair
from remuda.wire.keys.secret_file import write_secret
from remuda.wire.messages import ChunkReady
from remuda.wire.sockets import show_keys

TURN_S = 0.005
COPIES_PER_CONNECTION = 30
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


@dataclass
class _Copies:
    """A connection of its own for copies of what a worker says; renewed now and then, as workers do."""

    socket: zmq.Socket[bytes]
    channel: Channel = field(default_factory=Channel)
    sent: int = 0


class Repeating(Between):
    """Hands every announcement of a chunk over one to five times, in any order, up to `delay_s` later.

    The copies come over other connections and as other messages, so that nothing but the ledger can tell what they
    are."""

    def __init__(self, *, seed: int, delay_s: float) -> None:
        super().__init__()
        self._chance = random.Random(seed)
        self._delay_s = delay_s
        self._context = zmq.Context()
        self._server = new_pair(SERVER)
        self._keys: CallerKeys | None = None
        self._sockets: list[zmq.Socket[bytes]] = []
        self._backs: dict[bytes, zmq.Socket[bytes]] = {}
        self._names: dict[zmq.Socket[bytes], bytes] = {}
        self._copies: dict[bytes, _Copies] = {}
        self._later: list[tuple[float, int, bytes, list[bytes] | ChunkReady]] = []
        self._planned = 0
        self._poller = zmq.Poller()
        self.announced = 0
        self.delivered = 0

    @property
    def waiting(self) -> int:
        """Messages that are still to be handed over."""
        return len(self._later)

    def stand_before(self, connection: ConnectionFile, folder: Path) -> ConnectionFile:
        """As the base. It reads what passes, so that workers have to take it for their coordinator."""
        keys = caller_keys(connection, "worker")
        make_private(folder)
        write_secret(folder / SERVER, self._server, replace=True)
        write_secret(folder / "worker", keys.own, replace=True)
        self._keys = keys
        found = super().stand_before(connection, folder)
        return replace(found, server_key=self._server.public, keys_dir=str(folder))

    def _run(self) -> None:
        front = self._socket(zmq.ROUTER)
        front.router_handover = 1
        front.curve_server, front.curve_secretkey = 1, self._server.secret
        self.address = f"tcp://127.0.0.1:{front.bind_to_random_port('tcp://127.0.0.1')}"
        self._poller.register(front, zmq.POLLIN)
        self._ready.set()
        while not self._over.is_set():
            for ready, _ in self._poller.poll(round(1_000 * TURN_S)):
                for frames in _all_of(ready):
                    if ready is front:
                        self._plan(frames[0], frames[1:])
                    else:
                        front.send_multipart([self._names[ready], *frames])
            self._deliver()
        for opened in self._sockets:
            opened.close()
        self._context.term()

    def _plan(self, name: bytes, frames: list[bytes]) -> None:
        """When what a worker says is handed over, and how often."""
        message = decode(frames).message
        if not isinstance(message, ChunkReady):
            self._push(0.0, name, frames)
            return
        copies = self._chance.randrange(5)
        self.announced += 1
        self.delivered += 1 + copies
        self._push(self._chance.random() * self._delay_s, name, frames)
        for _ in range(copies):
            self._push(self._chance.random() * self._delay_s, name, message)

    def _push(self, delay_s: float, name: bytes, what: list[bytes] | ChunkReady) -> None:
        self._planned += 1
        heapq.heappush(self._later, (time.monotonic() + delay_s, self._planned, name, what))

    def _deliver(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            _, _, name, what = heapq.heappop(self._later)
            if isinstance(what, ChunkReady):
                self._copy(name.split(b":")[0], what)
                continue
            if name not in self._backs:
                self._backs[name] = self._connect(name)
                self._names[self._backs[name]] = name
                self._poller.register(self._backs[name], zmq.POLLIN)
            self._backs[name].send_multipart(what)

    def _copy(self, worker: bytes, message: ChunkReady) -> None:
        copies = self._copies.get(worker)
        if copies is None or copies.sent == COPIES_PER_CONNECTION:
            copies = self._copies[worker] = _Copies(self._connect(b"%b:9:copies:%d" % (worker, self.delivered)))
        copies.sent += 1
        copies.socket.send_multipart([bytes(frame) for frame in encode(copies.channel.post(message, 0.0))])

    def _connect(self, name: bytes) -> zmq.Socket[bytes]:
        back = self._socket(zmq.DEALER)
        back.routing_id, back.reconnect_ivl = name, 100
        assert self._keys is not None
        show_keys(back, self._keys)
        back.connect(self.target)
        return back

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        opened = self._context.socket(kind)
        opened.linger = 0
        self._sockets.append(opened)
        return opened


def _all_of(ready: zmq.Socket[bytes]) -> Generator[list[bytes]]:
    with contextlib.suppress(zmq.Again):
        while True:
            yield ready.recv_multipart(zmq.NOBLOCK)


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
