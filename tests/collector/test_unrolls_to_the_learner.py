"""Unrolls from the environment through payload files and the learner's ring: each row is what really happened."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from remuda.buffer.chunk import read_chunk, write_chunk
from remuda.buffer.frames import FRAMES
from remuda.buffer.ring import ColumnRing
from remuda.collector.collected import Collected
from remuda.collector.rows import UnrollRows
from remuda.environments.spaces import Array
from remuda.tests.buffer.chunks import WORKER
from remuda.tests.collector.rollouts import OneRollout
from remuda.tests.policy.unrolled.algorithm import Acting, checked
from remuda.tests.policy.unrolled.trails import Trail, noted
from remuda.wire.messages import ChunkId

UNROLL_STEPS, N_STEP = 3, 4


def chunks(notes: Path, *, images: bool) -> Iterator[Collected]:
    """Twelve chunks, each of another policy, and what is left then."""
    vector: Any = SyncVectorEnv(
        [partial(Trail, images=images, notes=notes) for _ in range(3)], autoreset_mode=AutoresetMode.NEXT_STEP
    )
    policy = Acting()
    rows = UnrollRows(unroll_steps=UNROLL_STEPS, n_step=N_STEP, discount=0.9)
    rollout = OneRollout(vector, policy, rows=rows, rng=np.random.default_rng(1), seeds=[1, 2, 3])
    for number in range(12):
        policy.updates = number
        yield rollout.collect(2 + 5 * number, {})
    yield rollout.flush()
    vector.close()


def batch_of_all(place: Path, *, images: bool) -> dict[str, Array]:
    """Every row, from the ring."""
    ring = ColumnRing(1_000)
    for sequence, chunk in enumerate(chunks(place, images=images)):
        assert (FRAMES in chunk.columns) == images
        meta = write_chunk(place, chunk.meta(ChunkId(WORKER, 1, sequence)), chunk.columns)
        ring.write(ring.next_row, read_chunk(place / meta.file, meta))
    return dict(ring.gather(np.arange(ring.next_row)))


@pytest.mark.parametrize("images", [False, True])
def test_there_is_one_row_for_each_step_and_each_is_what_happened(tmp_path: Path, images: bool) -> None:
    batch = batch_of_all(tmp_path, images=images)
    found = checked(batch, unroll_steps=UNROLL_STEPS, n_step=N_STEP)
    taken = noted(tmp_path, "taken")
    assert sorted(map(tuple, found["step"].tolist())) == sorted(map(tuple, taken.tolist()))
    assert len(taken) > 300
    # The last row of each episode there was, and W - 1 of each that was cut at most.
    assert found["terminated"].sum() > 20
    assert found["truncated"].sum() > 10
    assert 0 < found["cut"].sum() <= 3 * (UNROLL_STEPS + N_STEP - 1)
    assert (batch["acted_after"].min(axis=1, where=batch["acted_after"] > 0, initial=99)
            < batch["acted_after"].max(axis=1)).any(), "windows in which the policy changed"  # fmt: skip


def notices(batch: dict[str, Array]) -> bool:
    try:
        checked(batch, unroll_steps=UNROLL_STEPS, n_step=N_STEP)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("images", [False, True])
def test_the_check_notices_whatever_is_wrong(tmp_path: Path, images: bool) -> None:
    """Each column of another row, a step late, and with other numbers."""
    batch = batch_of_all(tmp_path, images=images)
    assert not notices(batch)
    for name, column in batch.items():
        wrong = {"of another row": np.roll(column, 1, axis=0), "reversed": column[::-1]}
        wrong["other numbers"] = ~column if column.dtype == np.bool_ else column + 1
        if column.ndim > 1:
            wrong["a step late"] = np.roll(column, 1, axis=1)
            wrong["the last is another"] = np.concatenate([column[:, :-1], column[:, :1] + 1], axis=1)
        assert [change for change in wrong if not notices({**batch, name: wrong[change]})] == [], name
