"""The experience of a serial run: batches have the rows that were drawn; files are written with checkpoints only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.buffer.chunk import ChunkError
from remuda.collector.collected import Collected
from remuda.config.environment import EnvConfig
from remuda.config.learning import BufferConfig, LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.config.workers import CollectorConfig
from remuda.learner.loop import Batch, Priorities
from remuda.runner.link import SERIAL_WORKER
from remuda.runner.memory import Memory
from remuda.training.replay.accounting import ReplayAccounting
from remuda.wire.messages import Batches, ChunkId, ChunkMeta, Counters, IndexedChunk, PolicyRef

CAPACITY = 20


class Experience:
    """The replay of a run, as its loop fills it and draws from it."""

    def __init__(self, data: Path, *, waiting_bytes: int = 1 << 20) -> None:
        config = ExperimentConfig(
            name="memory",
            env=EnvConfig(id="CartPole-v1"),
            learner=LearnerConfig(batch_size=4),
            collector=CollectorConfig(chunk_env_steps=8),
            buffer=BufferConfig(capacity=CAPACITY, min_rows=8, samples_per_insert=32),
        )
        self.data, self.replay = data, ReplayAccounting(config, 0.0, serial=True)
        self.replay.ledger.open(0, SERIAL_WORKER, 0)
        self.damaged: list[str] = []
        self.memory = Memory(self.replay, data, lease=1, unreadable=self._leave_out, waiting_bytes=waiting_bytes)
        self.payloads = self.memory.payloads
        self._sequence = 0

    def insert(self, first: int, rows: int = 8) -> ChunkMeta:
        """A chunk whose every column says which row it is."""
        numbers = np.arange(first, first + rows, dtype=np.float32)
        columns: dict[str, Any] = {"obs": np.stack([numbers, -numbers], axis=1), "reward": numbers}
        collected = Collected(columns, rows + 1, PolicyRef(0, 2, 20), [1.0], [rows], 0.5)
        meta = collected.meta(ChunkId(SERIAL_WORKER, 0, self._sequence))
        self._sequence += 1
        self.payloads.retire(self.replay.accept(meta, 0).deletable)
        self.memory.insert(meta, columns)
        return meta

    def draw(self, batches: int) -> list[Batch]:
        request = self.memory.request(1, Priorities(np.empty(0, np.int64), np.empty(0, np.float32))).request
        sampled = self.replay.sample(batches, 4, 1)
        counters = Counters(env_step=self.replay.ledger.env_step)
        self.memory.arrived(
            Batches(1, request, sampled.rows, sampled.weights, [], self.replay.index.first_live_row, counters)
        )
        return [batch for _ in range(batches + 1) if (batch := self.memory.next_batch()) is not None]

    def written(self) -> list[IndexedChunk]:
        """Write as for a checkpoint; returns the chunks that a journal would have."""
        written = self.payloads.written()
        added, gone = self.replay.news()
        return [
            IndexedChunk(chunk.first_row, written[chunk.meta.file]) for chunk in added if chunk.first_row not in gone
        ]

    def recovered(self, live: list[IndexedChunk]) -> tuple[Experience, list[str]]:
        """A resumed run with these chunks; and the names of files that it could not read."""
        again = Experience(self.data)
        again.replay.restore(self.replay.snapshot(), live, 0.0)
        again.memory.restore(again.replay.hand_out_new())
        return again, again.damaged

    def _leave_out(self, chunk: IndexedChunk, error: ChunkError) -> None:
        self.damaged.append(chunk.meta.file)
        self.payloads.retire(self.replay.quarantine(chunk.meta.file))


def files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_batches_hold_the_rows_that_were_drawn_and_their_weights(tmp_path: Path) -> None:
    held = Experience(tmp_path)
    assert held.memory.next_batch() is None
    for first in (0, 8, 16, 24):  # more than fit: the oldest are gone
        held.insert(first)
    batches = held.draw(3)
    assert len(batches) == 3
    for batch in batches:
        assert (batch.rows >= 12).all()
        assert (batch.columns["reward"] == batch.rows).all()
        assert (batch.columns["obs"][:, 1] == -batch.rows).all()
        assert batch.columns["weights"].shape == (4,)
        assert batch.env_step == held.replay.ledger.env_step


def test_what_was_written_is_read_back_and_the_same_rows_are_drawn_next(tmp_path: Path) -> None:
    held = Experience(tmp_path)
    for first in (0, 8, 16, 24):
        held.insert(first)
    held.draw(2)
    again, damaged = held.recovered(held.written())
    assert not damaged
    assert again.replay.index.rows == CAPACITY
    for batch, other in zip(held.draw(5), again.draw(5), strict=True):
        assert (batch.rows == other.rows).all()
        assert all((batch.columns[name] == other.columns[name]).all() for name in batch.columns)


def test_a_damaged_payload_is_left_out(tmp_path: Path) -> None:
    held = Experience(tmp_path)
    held.insert(0)
    held.insert(8)
    live = held.written()
    (tmp_path / live[0].meta.file).write_bytes(b"torn")
    again, damaged = held.recovered(live)
    assert damaged == [live[0].meta.file]
    assert again.replay.index.rows == 8
    assert all((batch.rows >= 8).all() for batch in again.draw(1))


def test_files_are_those_of_live_chunks_and_of_the_checkpoint_before(tmp_path: Path) -> None:
    held = Experience(tmp_path)
    for first in range(0, 80, 8):
        held.insert(first)
    assert files(tmp_path) == set(), "nothing is written before a checkpoint"
    before = set(held.payloads.written())
    assert files(tmp_path) == before == held.replay.live_files()
    held.payloads.sweep()
    for first in range(80, 112, 8):
        held.insert(first)
    held.payloads.written()
    assert before < files(tmp_path), "until the next checkpoint stands"
    held.payloads.sweep()
    assert files(tmp_path) == held.replay.live_files()


def test_chunks_that_take_too_much_memory_are_written_before_their_checkpoint(tmp_path: Path) -> None:
    held = Experience(tmp_path, waiting_bytes=150)  # one chunk has 96 bytes
    held.insert(0)
    assert files(tmp_path) == set()
    held.insert(8)
    assert len(files(tmp_path)) == 2
    held.insert(16, rows=4)
    assert set(held.payloads.written()) == held.replay.live_files()


def test_a_disk_that_refuses_loses_nothing_that_waits(tmp_path: Path) -> None:
    held = Experience(tmp_path / "missing")
    meta = held.insert(0)
    with pytest.raises(OSError, match="missing"):
        held.payloads.written()
    held.data.mkdir()
    assert held.payloads.written()[meta.file].rows == 8
