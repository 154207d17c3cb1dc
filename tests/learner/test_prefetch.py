"""Prefetched batches: requested ahead, used in order, with the rows that the coordinator drew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.buffer.chunk import ChunkError, Columns
from remuda.buffer.ring import ColumnRing, RowsNotHeldError
from remuda.learner import prefetch
from remuda.learner.loop import Batch, Priorities
from remuda.learner.prefetch import NothingReadableError, Prefetch
from remuda.wire.messages import (
    Batches,
    ChunkId,
    ChunkMeta,
    Counters,
    IndexedChunk,
    IndexedReanalysis,
    PolicyRef,
    Reanalysis,
    ReanalysisId,
)

WORKER = "aaaaaaaa-0000-4000-8000-000000000001"
ROWS = 8
"""Rows per chunk."""
NO_PRIORITIES = Priorities(np.empty(0, np.int64), np.empty(0, np.float32))


def chunk(number: int) -> IndexedChunk:
    """The chunk with rows from number * ROWS; each row contains its id."""
    meta = ChunkMeta(ChunkId(WORKER, 1, number), f"c{number}", ROWS, ROWS, 1, 0, PolicyRef(), 0.1)
    return IndexedChunk(number * ROWS, meta)


class Learner:
    """A prefetch over a real ring, and the payloads that it has read."""

    def __init__(self, capacity: int = 1_000) -> None:
        self.read: list[str] = []
        self.ring = ColumnRing(capacity)
        self.damaged: set[str] = set()
        self.reported: list[str] = []
        self.read_as: dict[str, Columns] = {}
        self.prefetch = Prefetch(
            lease=5,
            batches=2,
            batch_size=3,
            ring=self.ring,
            read=self._read,
            unreadable=lambda indexed, error: self.reported.append(indexed.meta.file),
            read_again=self._read_again,
            left_out=lambda meta, error: self.reported.append(meta.file),
        )

    def _read(self, indexed: IndexedChunk) -> Columns:
        self.read.append(indexed.meta.file)
        if indexed.meta.file in self.damaged:
            raise ChunkError("wrong checksum", Path(indexed.meta.file), "the test damaged it")
        ids = np.arange(indexed.first_row, indexed.first_row + ROWS)
        return {"obs": ids.astype(np.float32)[:, None], "reward": ids.astype(np.float32)}

    def _read_again(self, meta: Reanalysis) -> Columns:
        self.read.append(meta.file)
        if meta.file in self.damaged:
            raise ChunkError("wrong checksum", Path(meta.file), "the test damaged it")
        return self.read_as.get(meta.file) or {
            "reward": np.full(meta.rows, 1_000.0 + meta.target.train_iter, np.float32)
        }

    def wants_request(self) -> bool:
        return self.prefetch.wants_request

    def ask(self, train_iter: int = 0) -> int:
        return self.prefetch.request(train_iter, NO_PRIORITIES).request


def reply(
    request: int, rows: Sequence[Sequence[int]], *, new: Sequence[int] = (), env_step: int | None = None
) -> Batches:
    ids = np.array(rows, np.int64)
    return Batches(
        lease=5,
        request=request,
        rows=ids,
        weights=(ids + 0.5).astype(np.float32),
        new_chunks=[chunk(number) for number in new],
        first_live_row=0,
        counters=Counters(env_step=100 * request if env_step is None else env_step),
    )


def rows_of(batch: Batch | None) -> list[int]:
    assert batch is not None
    assert all(column.flags.writeable for column in batch.columns.values()), "torch copies read-only memory"
    assert batch.columns["reward"].tolist() == batch.rows.tolist()  # every row holds its own id
    assert batch.columns["obs"][:, 0].tolist() == batch.rows.tolist()
    assert batch.columns["weights"].tolist() == (batch.rows + 0.5).tolist()
    return [int(row) for row in batch.rows]


def test_two_requests_are_in_flight_and_a_third_once_the_first_is_begun() -> None:
    learner = Learner()
    wanted: list[int] = []
    while learner.wants_request():
        wanted.append(learner.ask())
    assert wanted == [1, 2]
    learner.prefetch.arrived(reply(1, [[0, 1, 2], [3, 4, 5]], new=[0]))
    assert not learner.wants_request()  # it has come, but training on it has not begun
    learner.prefetch.next_batch()
    assert learner.wants_request()
    assert learner.ask() == 3
    learner.prefetch.next_batch()
    assert not learner.wants_request()


def test_a_request_says_what_is_wanted_and_brings_the_priorities() -> None:
    learner = Learner()
    learner.prefetch.load([chunk(0), chunk(1)])
    errors = Priorities(np.array([3, 4]), np.array([0.5, 0.25], np.float32))
    request = learner.prefetch.request(17, errors)
    assert (request.lease, request.request, request.batches, request.batch_size) == (5, 1, 2, 3)
    assert (request.train_iter, request.loaded_row) == (17, 2 * ROWS)
    assert request.priority_rows.tolist() == [3, 4]
    assert request.priorities.tolist() == [0.5, 0.25]


@pytest.mark.parametrize("limit_bytes", [1, 60, 1 << 20])
def test_batches_do_not_depend_on_how_many_are_gathered(limit_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has 24 bytes: one, one, two and all batches at a time."""
    monkeypatch.setattr(prefetch, "GATHER_BYTES", limit_bytes)
    learner = Learner()
    drawn = np.random.default_rng(0).integers(0, 2 * ROWS, (2, 7, 3)).tolist()
    for request, rows in enumerate(drawn, start=1):
        learner.ask()
        learner.prefetch.arrived(reply(request, rows, new=[0, 1] if request == 1 else []))
    assert [rows_of(learner.prefetch.next_batch()) for _ in range(14)] == drawn[0] + drawn[1]
    assert learner.prefetch.next_batch() is None


def test_new_chunks_are_loaded_with_the_first_batch_and_not_before() -> None:
    learner = Learner()
    assert [learner.ask(), learner.ask()] == [1, 2]
    learner.prefetch.arrived(reply(1, [[0, 7, 15], [8, 9, 0]], new=[0, 1]))
    learner.prefetch.arrived(reply(2, [[16, 0, 1], [2, 3, 4]], new=[2]))
    assert (learner.read, learner.prefetch.counters) == ([], Counters())
    assert rows_of(learner.prefetch.next_batch()) == [0, 7, 15]
    assert learner.read == ["c0", "c1"]
    assert rows_of(learner.prefetch.next_batch()) == [8, 9, 0]
    assert (learner.read, learner.prefetch.counters.env_step) == (["c0", "c1"], 100)
    assert rows_of(learner.prefetch.next_batch()) == [16, 0, 1]
    assert (learner.read, learner.prefetch.counters.env_step) == (["c0", "c1", "c2"], 200)


def test_a_ring_as_large_as_the_index_still_holds_what_was_drawn() -> None:
    """Row 0 is evicted by the chunk of the second reply: if that were loaded on arrival, the first
    batch could not be gathered."""
    learner = Learner(capacity=2 * ROWS)
    assert [learner.ask(), learner.ask()] == [1, 2]
    learner.prefetch.arrived(reply(1, [[0, 1, 2], [0, 0, 9]], new=[0, 1]))
    learner.prefetch.arrived(reply(2, [[8, 16, 23], [8, 8, 8]], new=[2]))
    assert [rows_of(learner.prefetch.next_batch()) for _ in range(4)] == [[0, 1, 2], [0, 0, 9], [8, 16, 23], [8, 8, 8]]
    learner.ask()
    learner.prefetch.arrived(reply(3, [[0, 8, 8], [8, 8, 8]]))
    with pytest.raises(RowsNotHeldError):
        learner.prefetch.next_batch()


@given(total=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_answers_in_any_order_and_any_number_are_used_once_and_in_order(total: int, seed: int) -> None:
    """Answers are delivered in any order within the window in flight, and repeated at will."""
    network = Random(seed)
    learner = Learner()
    answers = {n: reply(n, [[n - 1, n, n], [n, n - 1, 0]], new=[n - 1]) for n in range(1, total + 1)}
    expected = [row for n in range(1, total + 1) for row in ([n - 1, n, n], [n, n - 1, 0])]
    used: list[list[int]] = []
    asked = 0
    while len(used) < len(expected):
        while learner.wants_request():
            asked = learner.ask()
        learner.prefetch.arrived(answers[network.randint(1, min(asked, total))])
        batch = learner.prefetch.next_batch()
        if batch is not None:
            used.append(rows_of(batch))
    assert used == expected
    assert learner.read == [f"c{n}" for n in range(total)]
    for number in answers:
        learner.prefetch.arrived(answers[number])
    assert learner.prefetch.next_batch() is None


def test_a_damaged_payload_is_reported_once_and_its_rows_give_way_to_others_of_the_batch() -> None:
    learner = Learner()
    learner.damaged = {"c1"}
    learner.ask()
    learner.prefetch.arrived(reply(1, [[0, 9, 17], [8, 15, 3]], new=[0, 1, 2]))
    assert rows_of(learner.prefetch.next_batch()) == [0, 17, 0]
    assert rows_of(learner.prefetch.next_batch()) == [3, 3, 3]
    assert learner.reported == ["c1"]
    learner.ask()
    learner.prefetch.arrived(reply(2, [[8, 9, 10]]))
    with pytest.raises(NothingReadableError, match="none of the 3 rows"):
        learner.prefetch.next_batch()


# --- what was computed again
def again(number: int, chunk_number: int, train_iter: int) -> IndexedReanalysis:
    id, target = ReanalysisId(WORKER, 1, number), PolicyRef(1, train_iter, train_iter)
    of = chunk(chunk_number)
    return IndexedReanalysis(number, Reanalysis(id, f"r{number}", of.meta.chunk, of.first_row, ROWS, target, 1, 0))


def test_batches_have_what_was_computed_again_once_the_answer_before_them_named_it() -> None:
    learner = Learner()
    learner.ask()
    learner.ask()
    learner.prefetch.arrived(replace(reply(2, [[1, 9, 2], [0, 8, 8]]), reanalyses=[again(1, 0, 5)]))
    learner.prefetch.arrived(reply(1, [[1, 9, 2], [0, 8, 8]], new=[0, 1]))
    rewards = [batch.columns["reward"].tolist() for _ in range(4) if (batch := learner.prefetch.next_batch())]
    assert rewards == [[1, 9, 2], [0, 8, 8], [1005, 9, 1005], [1005, 8, 8]]
    assert learner.prefetch.rewritten_rows == ROWS
    assert learner.prefetch.request(0, NO_PRIORITIES).loaded_reanalysis == 1
    assert [request.loaded_reanalysis for request in learner.prefetch.repeat()] == [1]


def test_an_older_one_a_repeated_one_and_one_of_evicted_rows_change_nothing() -> None:
    learner = Learner(capacity=2 * ROWS)
    learner.prefetch.load([chunk(0), chunk(1)])
    learner.prefetch.rewrite([again(1, 0, 5), again(2, 0, 3), again(3, 1, 1)])
    learner.prefetch.rewrite([again(3, 1, 9)])
    assert learner.read == ["c0", "c1", "r1", "r2", "r3"]
    assert learner.ring.gather(np.array([0, 7, 8]))["reward"].tolist() == [1005, 1005, 1001]
    learner.prefetch.load([chunk(2)])
    learner.prefetch.rewrite([again(4, 0, 99)])
    assert learner.ring.gather(np.array([8, 16, 23]))["reward"].tolist() == [1001, 16, 23]
    assert learner.prefetch.rewritten_rows == 2 * ROWS


def test_one_that_cannot_be_read_or_does_not_fit_is_reported_and_passed_over() -> None:
    learner = Learner()
    learner.damaged = {"r1"}
    learner.prefetch.load([chunk(0)])
    odd = again(2, 0, 7)
    learner.prefetch.rewrite([again(1, 0, 5)])
    learner.read_as = {"r2": {"unknown": np.zeros(ROWS)}}
    learner.prefetch.rewrite([odd, again(3, 0, 8)])
    assert learner.reported == ["r1", "r2"]
    assert learner.ring.gather(np.array([0]))["reward"].tolist() == [1008]
