"""On-policy experience in the index: each row once, in order, and none by a policy that is too old."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from remuda.buffer.index import ReplayIndex
from remuda.buffer.limiter import OnPolicyLimiter
from remuda.buffer.samplers import FifoSampler
from remuda.wire.messages import ChunkId, ChunkMeta, PolicyRef

WORKER = "aaaaaaaa-0000-4000-8000-000000000001"


def index_of(rows_per_update: int, lag: int) -> tuple[ReplayIndex, OnPolicyLimiter]:
    limiter = OnPolicyLimiter(rows_per_update, updates_ahead=lag)
    index = ReplayIndex(100, FifoSampler(), limiter=limiter, rng=np.random.default_rng(0), quota_bytes=1 << 30)
    return index, limiter


def chunk(number: int, rows: int, version: int) -> ChunkMeta:
    meta_policy = PolicyRef(1, version, version)
    return ChunkMeta(ChunkId(WORKER, 1, number), f"c{number}", rows, rows, 1, 0, meta_policy, 0.1)


def test_strictly_on_policy_lets_in_one_update_and_the_next_only_once_it_is_settled() -> None:
    index, limiter = index_of(rows_per_update=4, lag=0)
    assert index.insertable_rows() == 4
    index.insert(chunk(0, 4, version=0))
    assert index.insertable_rows() == 0
    rows = index.sample(1, 4, train_iter=0, beta=1.0).rows
    index.consume(int(rows.max()) + 1)
    assert index.insertable_rows() == 0, "it is being trained on"
    limiter.finish(index.sampled_rows)
    assert index.insertable_rows() == 4
    limiter.drop(2)
    assert index.insertable_rows() == 6, "what was dropped comes again"


def test_chunks_of_older_policies_are_dropped_and_counted() -> None:
    index, _ = index_of(rows_per_update=4, lag=8)
    for number, version in enumerate((0, 1, 1, 2)):
        index.insert(chunk(number, 3, version))
    dropped, files = index.drop_older_than(PolicyRef(1, 1, 0))
    assert (dropped, files) == (3, ["c0"])
    assert index.drop_older_than(PolicyRef(1, 1, 0)) == (0, [])
    index.insert(chunk(5, 3, version=0))
    assert index.drop_older_than(PolicyRef(1, 1, 0)) == (3, ["c5"]), "it came after the drop"
    assert index.drop_older_than(PolicyRef(1, 9, 0))[0] == 9
    assert index.sampleable_rows() == 0
    index.insert(chunk(4, 3, version=50))
    assert index.drop_older_than(PolicyRef(2, 0, 0))[0] == 3, "of a former learner"


def test_a_chunk_that_came_late_is_dropped_from_among_newer_ones() -> None:
    index, _ = index_of(rows_per_update=4, lag=0)
    for number, version in enumerate((1, 0, 1)):
        index.insert(chunk(number, 3, version))
    assert index.drop_older_than(PolicyRef(1, 1, 0)) == (3, ["c1"])
    assert index.sample(1, 6, train_iter=0, beta=1.0).rows.tolist() == [[0, 1, 2, 6, 7, 8]]


@given(
    steps=st.lists(st.tuples(st.sampled_from(["chunk", "update", "settle", "newer"]), st.integers(1, 6)), max_size=60),
    lag=st.integers(0, 3),
)
def test_every_row_is_used_at_most_once_in_order_within_the_lag(steps: list[tuple[str, int]], lag: int) -> None:
    index, limiter = index_of(rows_per_update=4, lag=lag)
    versions: dict[int, int] = {}
    used: list[int] = []
    version = number = dropped = 0
    for action, amount in steps:
        if action == "chunk" and index.insertable_rows() > 0:
            first = index.insert(chunk(number, amount, version)).first_row
            versions |= {first + row: version for row in range(amount)}
            number += 1
        elif action == "update" and index.sampleable_rows() >= 4:
            rows = index.sample(1, 4, train_iter=0, beta=1.0).rows.ravel()
            assert all(version - versions[row] <= lag for row in rows.tolist())
            used += rows.tolist()
            index.consume(int(rows.max()) + 1)
        elif action in ("settle", "newer"):
            version += action == "newer"
            rows_dropped = index.drop_older_than(PolicyRef(1, max(version - lag, 0), 0))[0]
            limiter.drop(rows_dropped)
            dropped += rows_dropped
            limiter.finish(index.sampled_rows)
    assert used == sorted(set(used))
    assert len(used) + dropped + index.rows == index.next_row
