"""Keys that are rotated or revoked while files travel by stream."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from remuda.buffer.chunk import encode_chunk
from remuda.coordinator.stream_server import FIRST_PAUSE_S, StreamServerProcess
from remuda.tests.patience import until
from remuda.tests.worker.stores.served import Ranch, chunk
from remuda.wire.keys.folder import FOLDER, CallerKeys, KeysFolder
from remuda.wire.keys.pair import KeyPair
from remuda.wire.keys.secret_file import read_secret
from remuda.worker.stores.transfers import Upload


class Keys:
    """A keys folder of its own, and the keys that a worker takes from it."""

    def __init__(self, place: Path) -> None:
        self.folder = KeysFolder(place / FOLDER)
        self.folder.save()

    def worker(self) -> CallerKeys:
        return CallerKeys(self.folder.server.public, read_secret(self.folder.path / "worker"))

    def restarted(self) -> KeysFolder:
        """As the next coordinator finds them."""
        self.folder = KeysFolder(self.folder.path)
        self.folder.turn_over()
        self.folder.save()
        return self.folder


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def upload(ranch: Ranch, sequence: int, server: KeyPair) -> Upload:
    announced, buffers = encode_chunk(*chunk(sequence))
    return Upload(ranch.grant(server=server), "chunk", announced.file, buffers)


def brought(ranch: Ranch) -> int:
    return len(list(ranch.run.data.glob("*.safetensors")))


def test_a_workers_key_that_is_rotated_costs_no_file(ranch: Ranch, keys: Keys) -> None:
    """The server ends the connection, refuses the former key, and the worker shows the new one."""
    with ranch.serve(keys.folder) as serving:
        client = ranch.client(keys=keys.worker)
        client.start(upload(ranch, 0, keys.folder.server))
        until(lambda: brought(ranch) == 1, "the first chunk")
        keys.folder.rotate("worker")
        for sequence in (1, 2):
            client.start(upload(ranch, sequence, keys.folder.server))
        until(lambda: brought(ranch) == 3, "those after it")
        assert client.trouble == ""
        assert serving.server._socket.malformed == 0


def test_the_coordinators_new_key_counts_from_its_next_start_for_streams_too(ranch: Ranch, keys: Keys) -> None:
    """A stream server that dies meanwhile is started again with the key that its coordinator has; after a restart at
    the same port workers connect with the new one, although their address has not changed."""
    former, now_s = keys.folder.server, [1_000.0]
    client = ranch.client(keys=keys.worker)

    def serving() -> StreamServerProcess:
        listener = ranch.listener.dup()
        listener.setblocking(False)
        return StreamServerProcess(listener, ranch.runs_dir, keys.folder.path, print, lambda: now_s[0])

    def brings(server: StreamServerProcess, sequence: int) -> None:
        client.start(upload(ranch, sequence, keys.folder.server))

        def is_there() -> bool:
            server.tick()
            return brought(ranch) == sequence + 1

        until(is_there, f"chunk {sequence}")

    with closing(serving()) as server:
        brings(server, 0)
        keys.folder.rotate("coordinator")
        brings(server, 1)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        now_s[0] += 10 * FIRST_PAUSE_S
        brings(server, 2)
    assert keys.restarted().server != former
    with closing(serving()) as server:
        brings(server, 3)
