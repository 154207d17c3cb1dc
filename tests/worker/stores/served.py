"""A run folder, and stores of workers that see it or do not: the stream server runs on a thread of the test."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from remuda.buffer.chunk import Columns, chunk_name
from remuda.storage.run_folder import RunFolder
from remuda.tests.keys import caller, keys_folder
from remuda.tests.worker.leases import EXPERIMENT, new_run
from remuda.tests.worker.serving import Serving
from remuda.wire.keys.authorized import Grants
from remuda.wire.keys.folder import CallerKeys, KeysFolder
from remuda.wire.keys.pair import KeyPair
from remuda.wire.messages import ChunkId, ChunkMeta, Grant, PolicyRef, Role
from remuda.worker.stores.client import StreamClient
from remuda.worker.stores.ports import RunStores, file_stores
from remuda.worker.stores.server.service import StreamServer
from remuda.worker.stores.streams import stream_stores

WORKER = "aaaaaaaa-0000-4000-8000-000000000001"
OTHER = "bbbbbbbb-0000-4000-8000-000000000001"
Kind = Literal["files", "streams"]


class Server(Serving):
    """A stream server for a runs folder. A context manager; what listens outlives it, as with a real coordinator."""

    def __init__(self, runs_dir: Path, listener: socket.socket, keys: KeysFolder | None = None) -> None:
        super().__init__()
        self.server = StreamServer(runs_dir, keys or keys_folder(), "tcp://127.0.0.1:0", os.dup(listener.fileno()))

    def _serve(self) -> None:
        while not self._stop:
            self.server.turn(0.01)

    def _let_go(self) -> None:
        self.server.close()


class Ranch:
    """A runs folder with one run, a place to listen, and workers of both kinds."""

    def __init__(self, root: Path) -> None:
        self.runs_dir = root / "runs"
        self.runs_dir.mkdir()
        self.run: RunFolder = new_run(self.runs_dir)
        self.run.owner.touch()  # a coordinator works on it
        self.elsewhere = root / "elsewhere"
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self.clients: list[StreamClient] = []
        self.wakes = 0

    @property
    def policy_file(self) -> Path:
        return self.run.policy_file(EXPERIMENT, 0)

    def serve(self, keys: KeysFolder | None = None) -> Server:
        return Server(self.runs_dir, self.listener, keys)

    def grant(
        self, role: Role = "collector", worker: str = WORKER, incarnation: int = 1, server: KeyPair | None = None
    ) -> Grant:
        grant = Grant(str(self.run.root), role, worker, incarnation, self.policy_file.name)
        return Grants(server or keys_folder().server).seal(grant)

    def client(self, port: int | None = None, keys: Callable[[], CallerKeys] = caller) -> StreamClient:
        client = StreamClient(keys, self._woken)
        client.serve_at(f"tcp://127.0.0.1:{port or self.port}")
        self.clients.append(client)
        return client

    def stores(self, kind: Kind, role: Role = "collector", client: StreamClient | None = None) -> RunStores:
        if kind == "files":
            return file_stores(self.run, self.policy_file.name)
        return stream_stores(client or self.client(), self.grant(role), RunFolder(self.elsewhere), {}, lambda: None)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.listener.close()

    def _woken(self) -> None:
        self.wakes += 1


def chunk(sequence: int, rows: int = 50, width: int = 4, worker: str = WORKER) -> tuple[ChunkMeta, Columns]:
    """A chunk of rows [rows, width], the same for the same numbers."""
    rng = np.random.default_rng(sequence)
    columns: Columns = {
        "obs": rng.standard_normal((rows, width), np.float32),
        "action": rng.integers(0, 4, rows),
        "reward": rng.standard_normal(rows, np.float32),
    }
    id = ChunkId(worker, 1, sequence)
    return ChunkMeta(id, chunk_name(id), rows, rows, 0, 0, PolicyRef(1, 0, 0), 0.1), columns
