"""A replay buffer in one process: what the coordinator keeps and what the learner keeps, fed with rows of CartPole."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from remuda.buffer.chunk import Columns, chunk_name
from remuda.buffer.index import ReplayIndex
from remuda.buffer.limiter import SamplesPerInsertLimiter
from remuda.buffer.ring import ColumnRing
from remuda.buffer.samplers import PrioritizedSampler
from remuda.wire.messages import ChunkId, ChunkMeta, PolicyRef

ALPHA = 0.6
BETA = 0.4

_WORKER = "0f8fad5b-d9cb-469f-a165-70867728950e"


class Replay:
    """The index and the ring of a prioritized run, without messages and files between them."""

    def __init__(self, capacity: int) -> None:
        limiter = SamplesPerInsertLimiter(samples_per_insert=None, min_rows=1)
        self._index = ReplayIndex(
            capacity,
            PrioritizedSampler(capacity, ALPHA),
            limiter=limiter,
            rng=np.random.default_rng(0),
            quota_bytes=1 << 50,
        )
        self._ring = ColumnRing(capacity)

    def insert(self, meta: ChunkMeta, columns: Columns) -> None:
        """Take in one chunk, as the coordinator does when it is announced and the learner when it has read it."""
        self._ring.write(self._index.insert(meta).first_row, columns)

    def sample(self, batch_size: int, batches: int = 1) -> npt.NDArray[np.int64]:
        """Draw batches and gather them at once, as a learner does with small rows; return all their rows."""
        rows = self._index.sample(batches, batch_size, train_iter=0, beta=BETA).rows.ravel()
        self._ring.gather(rows)
        return rows

    def update(self, rows: npt.NDArray[np.int64], priorities: npt.NDArray[np.float64]) -> None:
        """Pass on the errors that a learner saw."""
        self._index.update_priorities(rows, priorities)


def cartpole_columns(rows: int, rng: np.random.Generator) -> Columns:
    """Return rows with the columns, dtypes and shapes that a collector's chunks of CartPole have (48 bytes a row)."""
    return {
        "obs": rng.normal(size=(rows, 4)).astype(np.float32),
        "action": rng.integers(0, 2, rows),
        "reward": np.ones(rows, np.float32),
        "next_obs": rng.normal(size=(rows, 4)).astype(np.float32),
        "discount": np.where(rng.random(rows) < 0.02, 0.0, 0.99).astype(np.float32),
    }


def calls_per_s(call: Callable[[], object], *, seconds: float) -> float:
    """Call for so many seconds, one after the other, and return how many calls fit into one."""
    calls, started_s = 0, time.perf_counter()
    while (elapsed_s := time.perf_counter() - started_s) < seconds:
        call()
        calls += 1
    return calls / elapsed_s


def announced(sequence: int, rows: int) -> ChunkMeta:
    """Return what a collector announces of a chunk of so many rows."""
    chunk = ChunkId(worker=_WORKER, incarnation=1, sequence=sequence)
    return ChunkMeta(
        chunk=chunk,
        file=chunk_name(chunk),
        rows=rows,
        env_steps=rows,
        payload_bytes=48 * rows,
        checksum=0,
        policy=PolicyRef(epoch=1, version=0, train_iter=0),
        collect_s=0.0,
    )
