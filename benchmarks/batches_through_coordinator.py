"""Prioritized batches of 256 rows out of 10^6 CartPole rows, from a coordinator to a learner process and back.

Real coordinator, real socket, the learner's own prefetch, payload files read from disk; the errors of every row ride
back with the next request. Compared with the same index and ring in one process. Nobody trains.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from uuid import uuid4

import numpy as np

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.replay import Replay, announced, cartpole_columns
from remuda.benchmarks.stand_ins import DEADLINE_S, coordinator, join, say_ready, take_lease
from remuda.buffer.chunk import ChunkError, Columns, chunk_name, read_chunk, write_chunk
from remuda.buffer.ring import ColumnRing
from remuda.client.client import Client
from remuda.config.schema import ExperimentConfig
from remuda.learner.loop import Priorities
from remuda.learner.prefetch import Prefetch
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Assign, Batches, ChunkAccepted, ChunkId, ChunkMeta, ChunkReady, IndexedChunk, PolicyRef
from remuda.worker.link import Link
from remuda.worker.process import bound_threads

ROWS = 1_000_000
CHUNK_ROWS = 10_000
BATCH_SIZE = 256
WARM_UP_BATCHES = 512
WINDOW_S = 5.0
CONFIG = ExperimentConfig.model_validate(
    {
        "name": "batches-through-coordinator",
        "env": {"id": "CartPole-v1"},
        "learner": {"batch_size": BATCH_SIZE},
        "collector": {"count": 1, "chunk_env_steps": CHUNK_ROWS},
        "buffer": {"capacity": ROWS, "samples_per_insert": None},
        "evaluator": {"interval_env_steps": 1 << 50},
        "checkpoint": {"interval_env_steps": 1 << 50},
        "log": {"buffer_interval_samples": 1_000_000, "progress_interval_env_steps": 1 << 50},
        "stop": {"max_env_steps": 1 << 52},
    }
)
"""Requests as by default: 16 batches each, two in flight."""


def through_the_coordinator() -> float:
    """Batches/s in the learner's hands, gathered."""
    bound_threads()
    with tempfile.TemporaryDirectory() as name, coordinator(Path(name)) as connection_file:
        with Client(connection_file) as client:
            client.submit(CONFIG, run_dir=Path(name) / "run")
        uuid = str(uuid4())
        collector = join(connection_file, "collector", uuid)
        evaluator, learner = join(connection_file, "evaluator"), join(connection_file, "learner")
        leases = [take_lease(link) for link in (collector, evaluator, learner)]
        for link, lease in zip((collector, evaluator, learner), leases, strict=True):
            say_ready(link, lease)
        _fill(collector, leases[0], uuid)
        learned = _Learner(learner, leases[2])
        learned.take(WARM_UP_BATCHES)
        begin_s, batches = time.perf_counter(), 0
        while (elapsed_s := time.perf_counter() - begin_s) < WINDOW_S:
            learned.take(CONFIG.learner.prefetch_batches)
            batches += CONFIG.learner.prefetch_batches
        for link in (collector, evaluator, learner):
            link.close("done", 1.0)
        return batches / elapsed_s


def in_process() -> float:
    """Batches/s of the same index and ring, batch by batch in one thread."""
    bound_threads()
    rng = np.random.default_rng(0)
    replay = Replay(ROWS)
    for sequence in range(ROWS // CHUNK_ROWS):
        replay.insert(announced(sequence, CHUNK_ROWS), cartpole_columns(CHUNK_ROWS, rng))
    errors = _errors()

    def take(batches: int) -> None:
        for _ in range(batches):
            replay.update(replay.sample(BATCH_SIZE), next(errors))

    take(WARM_UP_BATCHES)
    begin_s, batches = time.perf_counter(), 0
    while (elapsed_s := time.perf_counter() - begin_s) < WINDOW_S:
        take(CONFIG.learner.prefetch_batches)
        batches += CONFIG.learner.prefetch_batches
    return batches / elapsed_s


class _Learner:
    """All of a learner but the learning."""

    def __init__(self, link: Link, assign: Assign) -> None:
        self._link = link
        self._data = RunFolder(Path(assign.run_dir)).data
        self._prefetch = Prefetch(
            lease=assign.lease,
            batches=CONFIG.learner.prefetch_batches,
            batch_size=BATCH_SIZE,
            ring=ColumnRing(ROWS),
            read=self._read,
            unreadable=_fail,
        )
        self._rows: list[np.ndarray] = []
        self._errors = _errors()
        self._updates = 0

    def take(self, batches: int) -> None:
        """Get so many batches and find errors on their rows."""
        end_s = time.monotonic() + DEADLINE_S
        while batches:
            while self._prefetch.wants_request:
                self._link.send(self._prefetch.request(self._updates, self._priorities()))
            batch = self._prefetch.next_batch()
            if batch is not None:
                self._rows.append(batch.rows)
                self._updates += 1
                batches -= 1
                self._link.progress(1)
            elif time.monotonic() > end_s:
                raise TimeoutError("no batches came")
            message = self._link.receive(0.2 if batch is None else 0.0)
            if isinstance(message, Batches):
                self._prefetch.arrived(message)

    def _priorities(self) -> Priorities:
        rows, self._rows = self._rows, []
        if not rows:
            return Priorities(np.empty(0, np.int64), np.empty(0, np.float32))
        return Priorities(np.concatenate(rows), np.concatenate([next(self._errors) for _ in rows]))

    def _read(self, chunk: IndexedChunk) -> Columns:
        return read_chunk(self._data / chunk.meta.file, chunk.meta)


def _fill(collector: Link, assign: Assign, uuid: str) -> None:
    """Announce 10^6 rows as the collector of this UUID; returns once they are all counted."""
    rng = np.random.default_rng(0)
    data = RunFolder(Path(assign.run_dir)).data
    for sequence in range(ROWS // CHUNK_ROWS):
        chunk = ChunkId(uuid, 1, sequence)
        meta = ChunkMeta(chunk, chunk_name(chunk), CHUNK_ROWS, CHUNK_ROWS, 0, 0, PolicyRef(1, 0, 0), 0.1)
        meta = write_chunk(data, meta, cartpole_columns(CHUNK_ROWS, rng))
        collector.send(ChunkReady(assign.lease, meta))
    waiting, end_s = ROWS // CHUNK_ROWS, time.monotonic() + DEADLINE_S
    while waiting:
        message = collector.receive(1.0)
        if isinstance(message, ChunkAccepted):
            if message.rejected is not None:
                raise RuntimeError(f"a chunk was refused: {message.rejected}")
            waiting -= 1
        elif time.monotonic() > end_s:
            raise TimeoutError("not all chunks were counted")


def _errors() -> Iterator[np.ndarray]:
    """Errors of the rows of a batch, without end."""
    rng = np.random.default_rng(1)
    return cycle([np.abs(rng.normal(size=BATCH_SIZE)).astype(np.float32) for _ in range(64)])


def _fail(chunk: IndexedChunk, error: ChunkError) -> None:
    raise error


def figures(peers: bool) -> list[Figure]:
    """No peer delivers batches by a service between two processes in this way: ours is compared with itself."""
    return compare(
        "batches_through_coordinator",
        unit="batches/s",
        goal=">= 0.6",
        ours=through_the_coordinator,
        references={"in process": in_process},
    )


if __name__ == "__main__":
    main(figures)
