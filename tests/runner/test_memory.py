"""Serial mode's data path hands out exactly the rows that were drawn, and counts what it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from remuda.buffer.ring import ColumnRing
from remuda.collector.rollout import Collected
from remuda.config.schema import BufferConfig, CollectorConfig, EnvConfig, ExperimentConfig, LearnerConfig
from remuda.coordinator.experience import Experience
from remuda.learner.loop import Priorities
from remuda.runner.loop import SERIAL_WORKER
from remuda.runner.memory import ChunkRefusedError, Memory
from remuda.wire.messages import PolicyRef

NONE = Priorities(np.empty(0, np.int64), np.empty(0, np.float32))


def collected(first: int, rows: int) -> Collected:
    """Rows whose every column says which row it is."""
    numbers = np.arange(first, first + rows, dtype=np.float32)
    columns: dict[str, Any] = {"obs": np.stack([numbers, -numbers], axis=1), "reward": numbers}
    return Collected(columns, rows + 1, PolicyRef(0, 2, 20), [1.0], [rows], 0.5)


def memory(capacity: int = 20) -> tuple[Memory, Experience]:
    config = ExperimentConfig(
        name="memory",
        env=EnvConfig(id="CartPole-v1"),
        learner=LearnerConfig(batch_size=4),
        collector=CollectorConfig(chunk_env_steps=8),
        buffer=BufferConfig(capacity=capacity, min_rows=8, samples_per_insert=None),
    )
    experience = Experience(config, 0.0, collectors=1, batches_in_flight=1)
    return Memory(experience, ColumnRing(capacity), worker=SERIAL_WORKER, life=0), experience


def test_batches_hold_the_rows_that_were_drawn_and_their_weights() -> None:
    path, _ = memory()
    for first in (0, 8, 16, 24):  # more than fit: the oldest are gone
        path.insert(collected(first, 8))
    path.sample(3, 4, train_iter=0, priorities=NONE)
    for _ in range(3):
        batch = path.next_batch()
        assert batch is not None
        assert (batch.rows >= 12).all()
        assert (batch.columns["reward"] == batch.rows).all()
        assert (batch.columns["obs"][:, 1] == -batch.rows).all()
        assert batch.columns["weights"].shape == (4,)
    assert path.next_batch() is None


def test_no_batch_before_one_was_drawn() -> None:
    path, _ = memory()
    assert path.next_batch() is None


def test_chunks_count_once_each_and_their_memory_is_not_held_against_the_quota() -> None:
    path, experience = memory()
    metas = [path.insert(collected(first, 8)) for first in (0, 8)]
    assert [meta.chunk.sequence for meta in metas] == [0, 1]
    assert (experience.env_step, experience.episode, experience.rows) == (18, 2, 16)
    assert metas[0].payload_bytes == 8 * 3 * 4


def test_priorities_are_given_back_before_the_next_draw() -> None:
    path, experience = memory()
    path.insert(collected(0, 8))
    errors = np.full(8, 1e-9, np.float32)
    errors[5] = 1e6
    path.sample(1, 4, train_iter=1, priorities=Priorities(np.arange(8), errors))
    batch = path.next_batch()
    assert batch is not None
    assert (batch.rows == 5).sum() >= 3
    assert experience.samples_per_insert is None  # nothing came after the warm-up


def test_a_chunk_that_cannot_be_held_is_refused_with_advice() -> None:
    path, _ = memory(capacity=10)
    with pytest.raises(ChunkRefusedError, match=r"raise buffer\.capacity or lower collector\.chunk_env_steps"):
        path.insert(collected(0, 11))
