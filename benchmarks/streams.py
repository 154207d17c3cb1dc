"""Payloads by stream from a collector into data/, against bare ZeroMQ of the same sizes, and against files."""

from __future__ import annotations

import functools
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import uuid4

import numpy as np
import zmq

from remuda.benchmarks.figure import Figure, Measure, compare, main
from remuda.buffer.chunk import Columns, chunk_name
from remuda.coordinator.stream_server import StreamServerProcess, listen
from remuda.storage.existing_folder import prepare
from remuda.storage.run_folder import RunFolder
from remuda.wire.keys.authorized import Grants
from remuda.wire.keys.folder import FOLDER, CallerKeys, KeysFolder
from remuda.wire.keys.pair import new_pair
from remuda.wire.keys.secret_file import read_secret
from remuda.wire.messages import ChunkId, ChunkMeta, Grant, PolicyRef
from remuda.worker.stores.client import StreamClient
from remuda.worker.stores.ports import NotNowError, PayloadStore, file_stores
from remuda.worker.stores.streams import stream_stores

OBSERVATION = 128
"""float32 per observation: 1,008 rows are 1 MiB, with next observation, action, reward and discount."""
IN_FLIGHT = 2
"""Chunks on their way at once, as of a collector."""
WARM_UP = 8
WAIT_S = 0.05


@dataclass(frozen=True)
class Load:
    """What is sent: so many chunks of so many rows."""

    rows: int
    count: int

    @property
    def nbytes(self) -> int:
        """Bytes of a chunk's columns."""
        return sum(column.nbytes for column in _columns(self.rows).values())


SMALL, LARGE = Load(1_008, 1_024), Load(16_128, 64)
"""Of 1 MiB and of 16 MiB a chunk."""
DEADLINE_S = 60.0
POLICY = "policy_x"


def ours(load: Load = SMALL) -> float:
    """GB/s of columns from a process with the real client, through the real server, into files with their names."""
    with _server() as (keys, port, run, folder):
        return _measured(load, functools.partial(_by_stream, load.rows, keys, port, run, folder))


def files(load: Load = SMALL) -> float:
    """GB/s of the same columns that the same process writes as files itself."""
    with tempfile.TemporaryDirectory() as folder:
        run = prepare(Path(folder) / "run", "error", mode="parallel", now=datetime.now(UTC))
        return _measured(load, functools.partial(_as_files, load.rows, run))


def bare(load: Load = SMALL, *, keys: bool) -> float:
    """GB/s of ZeroMQ messages of the same size from process to process, each of them answered; nothing is written."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    server = new_pair("server") if keys else None
    taker = spawn.Process(target=_take, args=(there, None if server is None else server.secret), daemon=True)
    taker.start()
    there.close()
    try:
        address: str = here.recv()
        public = None if server is None else server.public_bytes
        return _measured(load, functools.partial(_by_zeromq, load.rows, address, public))
    finally:
        taker.kill()
        taker.join()


# --- the process that sends -----------------------------------------------------------------------------------------

Put = Callable[[int], None]
"""Have this number of chunks arrive; returns when all are there."""


def _measured(load: Load, prepare_put: Callable[[], Put]) -> float:
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    sender = spawn.Process(target=_send, args=(there, load.count, prepare_put), daemon=True)
    sender.start()
    there.close()  # so that a sender that dies is an EOFError here
    try:
        elapsed_s: float = here.recv()
        return load.count * load.nbytes / elapsed_s / 1e9
    finally:
        sender.kill()
        sender.join()


def _send(pipe: Connection, count: int, prepare_put: Callable[[], Put]) -> None:
    put = prepare_put()
    put(WARM_UP)
    begin_s = time.perf_counter()
    put(count)
    pipe.send(time.perf_counter() - begin_s)
    time.sleep(DEADLINE_S)  # it is killed: a client that is closed in order would take time, too


def _by_stream(rows: int, keys: CallerKeys, port: int, run: RunFolder, folder: Path) -> Put:
    worker = str(uuid4())
    finished = threading.Event()

    def wait() -> None:
        finished.wait(WAIT_S)
        finished.clear()

    client = StreamClient(lambda: keys, finished.set)
    client.serve_at(f"tcp://127.0.0.1:{port}")
    granted = Grants(KeysFolder(folder / FOLDER).server).seal(Grant(str(run.root), "collector", worker, 1, POLICY))
    stores = stream_stores(client, granted, RunFolder(folder / "elsewhere"), {}, lambda: None)
    return _put(rows, stores.payloads, run, worker, wait)


def _as_files(rows: int, run: RunFolder) -> Put:
    return _put(rows, file_stores(run, POLICY).payloads, run, str(uuid4()), lambda: None)


def _put(rows: int, store: PayloadStore, run: RunFolder, worker: str, wait: Callable[[], object]) -> Put:
    columns = _columns(rows)
    number = 0

    def put(count: int) -> None:
        nonlocal number
        waiting: list[ChunkMeta] = []
        end = number + count
        while number < end or waiting:
            while number < end and len(waiting) < IN_FLIGHT:
                id = ChunkId(worker, 1, number)
                waiting.append(ChunkMeta(id, chunk_name(id), rows, rows, 0, 0, PolicyRef(), 0.1))
                number += 1
            left = [meta for meta in waiting if not _stored(store, meta, columns, run)]
            if len(left) == len(waiting):
                wait()
            waiting = left

    return put


def _stored(store: PayloadStore, meta: ChunkMeta, columns: Columns, run: RunFolder) -> bool:
    """Whether it is in data/; then it is deleted, as by a learner that has read it."""
    try:
        announced = store.write(meta, columns)
    except NotNowError:
        return False
    os.unlink(run.data / announced.file)
    return True


def _by_zeromq(rows: int, address: str, public: bytes | None) -> Put:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    if public is not None:
        own = new_pair("client")
        dealer.curve_serverkey, dealer.curve_publickey, dealer.curve_secretkey = public, own.public_bytes, own.secret
    dealer.connect(address)
    content = b"".join(column.tobytes() for column in _columns(rows).values())

    def put(count: int) -> None:
        for number in range(count):
            if number >= IN_FLIGHT:
                dealer.recv()
            dealer.send(content, copy=False)
        for _ in range(min(count, IN_FLIGHT)):
            dealer.recv()

    return put


def _take(pipe: Connection, secret: bytes | None) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    if secret is not None:
        router.curve_server, router.curve_secretkey = 1, secret
    router.bind("tcp://127.0.0.1:*")
    pipe.send(router.getsockopt_string(zmq.LAST_ENDPOINT))
    while True:
        peer = router.recv()
        router.recv(copy=False)
        router.send_multipart([peer, b""])


# --- the server ---------------------------------------------------------------------------------------------------


@contextmanager
def _server() -> Generator[tuple[CallerKeys, int, RunFolder, Path]]:
    """The process that a coordinator starts; it runs once somebody knocks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keys = KeysFolder(folder / FOLDER)
        keys.save()
        runs_dir = folder / "runs"
        run = prepare(runs_dir / "run", "error", mode="parallel", now=datetime.now(UTC))
        run.owner.touch()  # as of a run that goes on
        over = threading.Event()
        with closing(StreamServerProcess(listen("127.0.0.1", 0), runs_dir, keys.path, print)) as server:
            ticks = threading.Thread(target=_tick, args=(server, over))
            ticks.start()
            try:
                caller = CallerKeys(keys.server.public, read_secret(keys.path / "worker"))
                yield caller, server.port, run, folder
            finally:
                over.set()
                ticks.join()


def _tick(server: StreamServerProcess, over: threading.Event) -> None:
    while not over.wait(0.02):
        server.tick()


def _columns(rows: int) -> Columns:
    rng = np.random.default_rng(0)
    return {
        "obs": rng.standard_normal((rows, OBSERVATION), np.float32),
        "next_obs": rng.standard_normal((rows, OBSERVATION), np.float32),
        "action": rng.integers(0, 4, rows),
        "reward": rng.standard_normal(rows, np.float32),
        "discount": rng.random(rows, np.float32),
    }


def figures(peers: bool) -> list[Figure]:
    """The goal is that of bare ZeroMQ with keys, since nothing travels without; files are there to compare."""
    if peers:
        return []
    found: list[Figure] = []
    for name, load in (("streams_1_mib", SMALL), ("streams_16_mib", LARGE)):
        mine = functools.partial(ours, load)
        with_keys: dict[str, Measure] = {"bare ZeroMQ with keys": functools.partial(bare, load, keys=True)}
        found += compare(name, unit="GB/s", goal=">= 0.6", ours=mine, references=with_keys)
        beside: dict[str, Measure] = {
            "files": functools.partial(files, load),
            "bare ZeroMQ without keys": functools.partial(bare, load, keys=False),
        }
        found += compare(f"{name}_beside", unit="GB/s", goal=">= 0.1", ours=mine, references=beside)
    return found


if __name__ == "__main__":
    main(figures)
