"""Payloads from a collector's process through a file into the learner's ring, against plain writing and reading."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import uuid4

import msgspec
import numpy as np

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.peers import peer
from remuda.buffer.chunk import Columns, chunk_name, read_chunk, write_chunk
from remuda.buffer.ring import ColumnRing
from remuda.wire.messages import ChunkId, ChunkMeta, PolicyRef

ROWS = 1_008
OBSERVATION = 128
"""float32 per observation: a chunk of ROWS rows is 1 MiB, with next observation, action, reward and discount."""
RING_CHUNKS = 64
IN_FLIGHT = 8
"""Chunks that lie in data/ at once; a file is deleted once it is in the ring."""
WARM_UP = 64
"""So that every page of the ring has been touched."""
COUNT = 512

Write = Callable[[int], bytes]
"""Writes the chunk of this number and returns what the reader must be told."""
Read = Callable[[Path, bytes], None]


def ours() -> float:
    """GB/s with the real writer, its checksum, the real reader and the real ring."""
    ring = ColumnRing(RING_CHUNKS * ROWS)
    decoder = msgspec.msgpack.Decoder(ChunkMeta)

    def read(folder: Path, told: bytes) -> None:
        meta = decoder.decode(told)
        path = folder / meta.file
        ring.write(ring.next_row, read_chunk(path, meta))
        path.unlink()

    return _transfer(_write_chunks, read)


def plain() -> float:
    """GB/s of the same bytes written to a file, renamed, read and copied into an array; nothing is checked."""
    ring = np.zeros((RING_CHUNKS, sum(column.nbytes for column in _columns().values())), np.uint8)
    number = 0

    def read(folder: Path, told: bytes) -> None:
        nonlocal number
        path = folder / told.decode()
        with path.open("rb", buffering=0) as file:
            ring[number % RING_CHUNKS] = np.frombuffer(file.read(), np.uint8)
        path.unlink()
        number += 1

    return _transfer(_write_plain, read)


def _transfer(write: Callable[[str], Write], read: Read) -> float:
    """A process of its own writes; this one reads. Returns GB/s of columns."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        spawn = multiprocessing.get_context("spawn")
        here, there = spawn.Pipe()
        writer = spawn.Process(target=_serve, args=(there, write, folder), daemon=True)
        writer.start()
        there.close()  # so that a writer that dies is an EOFError here
        try:
            for count in (WARM_UP, COUNT):
                begin_s = time.perf_counter()
                here.send(count)
                for _ in range(count):
                    read(data, here.recv_bytes())
                    here.send_bytes(b"")
                elapsed_s = time.perf_counter() - begin_s
            return COUNT * sum(column.nbytes for column in _columns().values()) / elapsed_s / 1e9
        finally:
            writer.kill()
            writer.join()


def _serve(pipe: Connection, write: Callable[[str], Write], folder: str) -> None:
    """Write as many chunks as asked for, IN_FLIGHT ahead of the reader at most; the next request comes after them."""
    one = write(folder)
    number = 0
    while True:
        count: int = pipe.recv()
        for ahead in range(count):
            pipe.send_bytes(one(number))
            number += 1
            if ahead >= IN_FLIGHT:
                pipe.recv_bytes()
        for _ in range(min(count, IN_FLIGHT)):
            pipe.recv_bytes()


def _write_chunks(folder: str) -> Write:
    columns, worker = _columns(), str(uuid4())

    data = Path(folder)

    def write(number: int) -> bytes:
        chunk = ChunkId(worker, 1, number)
        meta = ChunkMeta(chunk, chunk_name(chunk), ROWS, ROWS, 0, 0, PolicyRef(), 0.1)
        meta = write_chunk(data, meta, columns)
        return msgspec.msgpack.encode(meta)

    return write


def _write_plain(folder: str) -> Write:
    columns = list(_columns().values())

    def write(number: int) -> bytes:
        temporary = os.path.join(folder, f"{number}.tmp")
        with open(temporary, "wb", buffering=0) as file:
            for column in columns:
                file.write(column.data.cast("B"))
        os.replace(temporary, os.path.join(folder, str(number)))
        return str(number).encode()

    return write


def _columns() -> Columns:
    rng = np.random.default_rng(0)
    return {
        "obs": rng.standard_normal((ROWS, OBSERVATION), np.float32),
        "next_obs": rng.standard_normal((ROWS, OBSERVATION), np.float32),
        "action": rng.integers(0, 4, ROWS),
        "reward": rng.standard_normal(ROWS, np.float32),
        "discount": rng.random(ROWS, np.float32),
    }


def figures(peers: bool) -> list[Figure]:
    """The peer puts such chunks into its object store, gets and copies them."""
    found = compare("payload", unit="GB/s", goal=">= 0.6", ours=ours, references={"plain write and read": plain})
    if peers:
        found += compare("payload", unit="GB/s", goal=">= 3", ours=ours, references={"Ray": peer("ray", "payload")})
    return found


if __name__ == "__main__":
    main(figures)
