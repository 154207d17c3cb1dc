"""Serial mode's data path hands out exactly the rows that were drawn, and counts what it takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.buffer.ring import ColumnRing
from remuda.collector.collected import Collected
from remuda.config.environment import EnvConfig
from remuda.config.learning import BufferConfig, LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.config.workers import CollectorConfig
from remuda.learner.loop import Priorities
from remuda.runner.checkpoint_journal import SERIAL_WORKER
from remuda.runner.memory import ChunkRefusedError, Memory
from remuda.runner.payloads import Payloads
from remuda.training.replay.accounting import ReplayAccounting
from remuda.wire.messages import IndexedChunk, PolicyRef

NONE = Priorities(np.empty(0, np.int64), np.empty(0, np.float32))


def collected(first: int, rows: int) -> Collected:
    """Rows whose every column says which row it is."""
    numbers = np.arange(first, first + rows, dtype=np.float32)
    columns: dict[str, Any] = {"obs": np.stack([numbers, -numbers], axis=1), "reward": numbers}
    return Collected(columns, rows + 1, PolicyRef(0, 2, 20), [1.0], [rows], 0.5)


def memory(capacity: int = 20, payloads: Payloads | None = None) -> tuple[Memory, ReplayAccounting]:
    config = ExperimentConfig(
        name="memory",
        env=EnvConfig(id="CartPole-v1"),
        learner=LearnerConfig(batch_size=4),
        collector=CollectorConfig(chunk_env_steps=8),
        buffer=BufferConfig(capacity=capacity, min_rows=8, samples_per_insert=None),
    )
    replay = ReplayAccounting(config, 0.0, collectors=1, batches_in_flight=1, journaled=True)
    replay.ledger.open(0, SERIAL_WORKER, 0)  # as the serial run does
    payloads = payloads or Payloads(Path("nothing-is-written-here"))
    return Memory(replay, ColumnRing(capacity), payloads, worker=SERIAL_WORKER, generation=0), replay


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
    path, replay = memory()
    metas = [path.insert(collected(first, 8)) for first in (0, 8)]
    assert [meta.chunk.sequence for meta in metas] == [0, 1]
    assert (replay.ledger.env_step, replay.ledger.episode, replay.ledger.rows) == (18, 2, 16)
    assert metas[0].payload_bytes == 8 * 3 * 4


def test_priorities_are_given_back_before_the_next_draw() -> None:
    path, replay = memory()
    path.insert(collected(0, 8))
    errors = np.full(8, 1e-9, np.float32)
    errors[5] = 1e6
    path.sample(1, 4, train_iter=1, priorities=Priorities(np.arange(8), errors))
    batch = path.next_batch()
    assert batch is not None
    assert (batch.rows == 5).sum() >= 3
    assert replay.samples_per_insert is None  # nothing came after the warm-up


def test_a_chunk_that_cannot_be_held_is_refused_with_advice() -> None:
    path, _ = memory(capacity=10)
    with pytest.raises(ChunkRefusedError, match=r"raise buffer\.capacity or lower collector\.chunk_env_steps"):
        path.insert(collected(0, 11))


def test_what_was_written_is_read_back_and_the_same_rows_are_drawn_next(tmp_path: Path) -> None:
    payloads = Payloads(tmp_path)
    path, replay = memory(payloads=payloads)
    for first in (0, 8, 16, 24):
        path.insert(collected(first, 8))
    path.sample(2, 4, train_iter=1, priorities=NONE)
    written = payloads.written()
    added, gone = replay.news()
    live = [IndexedChunk(chunk.first_row, written[chunk.meta.file]) for chunk in added if chunk.first_row not in gone]
    again, remembered = memory(payloads=Payloads(tmp_path))
    remembered.restore(replay.snapshot(), live, 0.0)
    damage: list[str] = []
    again.load(tmp_path, damage.append)
    assert damage == []
    assert remembered.index.rows == 20
    for one in (path, again):
        one.sample(5, 4, train_iter=2, priorities=NONE)
    while (batch := path.next_batch()) is not None:
        other = again.next_batch()
        assert other is not None
        assert (batch.rows == other.rows).all()
        assert all((batch.columns[name] == other.columns[name]).all() for name in batch.columns)


def test_a_damaged_payload_is_left_out_and_said(tmp_path: Path) -> None:
    payloads = Payloads(tmp_path)
    path, replay = memory(payloads=payloads)
    for first in (0, 8):
        path.insert(collected(first, 8))
    written = payloads.written()
    live = [IndexedChunk(chunk.first_row, written[chunk.meta.file]) for chunk in replay.news()[0]]
    (tmp_path / live[0].meta.file).write_bytes(b"torn")
    again, remembered = memory(payloads=Payloads(tmp_path))
    remembered.restore(replay.snapshot(), live, 0.0)
    damage: list[str] = []
    again.load(tmp_path, damage.append)
    assert len(damage) == 1
    assert "wrong size" in damage[0]
    assert remembered.index.rows == 8
    again.sample(1, 4, train_iter=0, priorities=NONE)
    batch = again.next_batch()
    assert batch is not None
    assert (batch.rows >= 8).all()


def test_only_live_chunks_are_ever_written(tmp_path: Path) -> None:
    payloads = Payloads(tmp_path)
    path, replay = memory(payloads=payloads)
    for first in range(0, 80, 8):
        path.insert(collected(first, 8))
    assert list(tmp_path.iterdir()) == []
    payloads.written()
    assert {file.name for file in tmp_path.iterdir()} == replay.live_files()


def test_files_of_the_checkpoint_before_stay_until_the_next_one_stands(tmp_path: Path) -> None:
    payloads = Payloads(tmp_path)
    path, replay = memory(payloads=payloads)
    path.insert(collected(0, 8))
    before = set(payloads.written())
    payloads.sweep()
    for first in range(8, 40, 8):
        path.insert(collected(first, 8))
    payloads.written()
    assert before < {file.name for file in tmp_path.iterdir()}
    payloads.sweep()
    assert {file.name for file in tmp_path.iterdir()} == replay.live_files()


def test_chunks_that_take_too_much_memory_are_written_before_their_checkpoint(tmp_path: Path) -> None:
    payloads = Payloads(tmp_path, waiting_bytes=150)  # one chunk has 96 bytes
    path, replay = memory(payloads=payloads)
    path.insert(collected(0, 8))
    assert list(tmp_path.iterdir()) == []
    path.insert(collected(8, 8))
    assert len(list(tmp_path.iterdir())) == 2
    path.insert(collected(16, 4))
    assert set(payloads.written()) == replay.live_files()  # also what had been written before


def test_a_disk_that_refuses_loses_nothing_that_waits(tmp_path: Path) -> None:
    payloads = Payloads(tmp_path / "missing")
    path, replay = memory(payloads=payloads)
    meta = path.insert(collected(0, 8))
    with pytest.raises(OSError, match="missing"):
        payloads.written()
    (tmp_path / "missing").mkdir()
    known = payloads.written()[meta.file]
    assert replace(collected(0, 8), env_steps=known.env_steps).rows == known.rows == 8
    assert replay.live_files() == {meta.file}
