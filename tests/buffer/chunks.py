"""Chunks for tests: metadata without files, and columns like CartPole's."""

from __future__ import annotations

import numpy as np

from remuda.buffer.chunk import Columns, chunk_name
from remuda.wire.messages import ChunkId, ChunkMeta, PolicyRef

WORKER = "0f8fad5b-d9cb-469f-a165-70867728950e"


def meta_of(sequence: int, rows: int, *, payload_bytes: int = 100, train_iter: int = 0) -> ChunkMeta:
    """Metadata of a chunk whose file does not exist."""
    chunk = ChunkId(worker=WORKER, incarnation=1, sequence=sequence)
    return ChunkMeta(
        chunk=chunk,
        file=chunk_name(chunk),
        rows=rows,
        env_steps=rows,
        payload_bytes=payload_bytes,
        checksum=0,
        policy=PolicyRef(epoch=1, version=train_iter, train_iter=train_iter),
        collect_s=0.5,
    )


def cartpole_columns(rows: int, seed: int = 0) -> Columns:
    """Columns of every kind that a chunk holds: vectors, scalars, floats, integers, booleans."""
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.normal(size=(rows, 4)).astype(np.float32),
        "action": rng.integers(0, 2, rows),
        "reward": rng.random(rows).astype(np.float32),
        "terminated": rng.random(rows) < 0.1,
    }
