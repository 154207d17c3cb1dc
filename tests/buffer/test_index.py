"""The index agrees with a naive model of rows and files, whatever happens in whatever order."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from remuda.buffer.index import ChunkTooLargeError, NotEnoughRowsError, ReplayIndex
from remuda.buffer.limiter import SamplesPerInsertLimiter
from remuda.buffer.samplers import FifoSampler, PrioritizedSampler, Sampler, UniformSampler
from remuda.tests.buffer.chunks import meta_of
from remuda.wire.messages import ChunkMeta, IndexedChunk


def index_of(capacity: int, sampler: Sampler | None = None, *, quota_bytes: int = 10**9) -> ReplayIndex:
    return ReplayIndex(
        capacity,
        sampler or PrioritizedSampler(capacity, 0.6),
        limiter=SamplesPerInsertLimiter(None, 1),
        rng=np.random.default_rng(0),
        quota_bytes=quota_bytes,
    )


def file_of(sequence: int) -> str:
    return meta_of(sequence, 1).file


# --- the model ------------------------------------------------------------------------------------------------------
@dataclass
class ModelChunk:
    meta: ChunkMeta
    live: set[int]
    rows: range
    told: bool = False
    loaded: bool = False
    deleted: bool = False


@dataclass
class Model:
    """Sets and lists, a row at a time."""

    capacity: int
    quota_bytes: int
    chunks: list[ModelChunk] = field(default_factory=list[ModelChunk])
    next_row: int = 0
    uses: dict[int, int] = field(default_factory=dict[int, int])

    def live(self) -> set[int]:
        return set[int]().union(*(chunk.live for chunk in self.chunks))

    def evict_below(self, row: int) -> None:
        for chunk in self.chunks:
            chunk.live = {kept for kept in chunk.live if kept >= row}

    def delete_what_nobody_needs(self) -> set[str]:
        files = set[str]()
        for chunk in self.chunks:
            if not chunk.deleted and not chunk.live and not (chunk.told and not chunk.loaded):
                chunk.deleted = True
                files.add(chunk.meta.file)
        return files

    def payload_bytes(self) -> int:
        return sum(chunk.meta.payload_bytes for chunk in self.chunks if not chunk.deleted)

    def keep_quota(self) -> set[str]:
        files = self.delete_what_nobody_needs()
        while self.payload_bytes() > self.quota_bytes:
            living = [chunk for chunk in self.chunks if chunk.live]
            if len(living) < 2 or (living[0].told and not living[0].loaded):
                break
            self.evict_below(living[0].rows.stop)
            files |= self.delete_what_nobody_needs()
        return files


class IndexAgainstModel(RuleBasedStateMachine):
    @initialize(
        capacity=st.integers(1, 40),
        quota=st.sampled_from([300, 1000, 10**9]),
        sampler=st.sampled_from(["uniform", "prioritized", "fifo"]),
    )
    def start(self, capacity: int, quota: int, sampler: str) -> None:
        samplers: dict[str, Sampler] = {
            "uniform": UniformSampler(capacity),
            "prioritized": PrioritizedSampler(capacity, 0.6),
            "fifo": FifoSampler(),
        }
        self.fifo = sampler == "fifo"
        self.index = index_of(capacity, samplers[sampler], quota_bytes=quota)
        self.model = Model(capacity, quota)
        self.sequence = 0
        self.in_order: list[int] = []  # fifo: rows not drawn yet

    @rule(rows=st.integers(0, 15), payload_bytes=st.integers(1, 300), train_iter=st.integers(0, 50))
    def insert(self, rows: int, payload_bytes: int, train_iter: int) -> None:
        meta = meta_of(self.sequence, rows, payload_bytes=payload_bytes, train_iter=train_iter)
        if rows > self.model.capacity:
            with pytest.raises(ChunkTooLargeError):
                self.index.check_fits(meta)
            return
        self.sequence += 1
        result = self.index.insert(meta)
        first, end = self.model.next_row, self.model.next_row + rows
        assert result.first_row == first
        self.model.next_row = end
        self.model.evict_below(end - self.model.capacity)
        new = ModelChunk(meta, set(range(first, end)), range(first, end))
        self.model.chunks.append(new)
        self.model.uses |= dict.fromkeys(new.rows, 0)
        self.in_order += new.rows
        self.expect(result.deletable, self.model.keep_quota())

    @precondition(lambda self: self.index.sampleable_rows() > 0)
    @rule(batches=st.integers(1, 3), batch_size=st.integers(1, 6), train_iter=st.integers(0, 80))
    def sample(self, batches: int, batch_size: int, train_iter: int) -> None:
        live = self.model.live()
        if self.fifo and batches * batch_size > len([row for row in self.in_order if row in live]):
            with pytest.raises(NotEnoughRowsError):
                self.index.sample(batches, batch_size, train_iter=train_iter, beta=0.4)
            return
        sampled = self.index.sample(batches, batch_size, train_iter=train_iter, beta=0.4)
        rows: list[int] = sampled.rows.ravel().tolist()
        assert set(rows) <= live
        if self.fifo:
            waiting = [row for row in self.in_order if row in live]
            assert rows == waiting[: len(rows)]
            self.in_order = waiting[len(rows) :]
        for row in rows:
            self.model.uses[row] += 1
        assert sampled.uses.ravel().tolist() == [self.model.uses[row] for row in rows]
        collected = {row: chunk.meta.policy.train_iter for chunk in self.model.chunks for row in chunk.rows}
        assert sampled.staleness.ravel().tolist() == [max(0, train_iter - collected[row]) for row in rows]
        for name in ("rows", "weights", "uses", "priorities", "staleness"):
            assert getattr(sampled, name).shape == (batches, batch_size)
        assert (sampled.weights.max(axis=1) == 1).all()
        assert (sampled.weights > 0).all()

    @rule(data=st.data())
    def update_priorities(self, data: st.DataObject) -> None:
        rows = data.draw(st.lists(st.integers(-2, self.model.next_row + 2), max_size=6))
        self.index.update_priorities(np.array(rows, np.int64), np.linspace(0, 9, len(rows), dtype=np.float32))

    @rule()
    def hand_out(self) -> None:
        new = [chunk for chunk in self.model.chunks if chunk.live and not chunk.told]
        told = self.index.hand_out_new()
        assert told == [IndexedChunk(first_row=chunk.rows.start, meta=chunk.meta) for chunk in new]
        for chunk in self.model.chunks:
            chunk.told = chunk.told or bool(chunk.live)
        covered = {row for chunk in told for row in range(chunk.first_row, chunk.first_row + chunk.meta.rows)}
        known = {row for chunk in self.model.chunks if chunk.told for row in chunk.rows}
        assert self.model.live() <= covered | known, "a live row that the learner will never get"

    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        told = [chunk for chunk in self.model.chunks if chunk.told]
        ends = sorted({0, *(chunk.rows.stop for chunk in told)})
        loaded_row = data.draw(st.sampled_from(ends))
        for chunk in told:
            chunk.loaded = chunk.loaded or chunk.rows.stop <= loaded_row
        self.expect(self.index.confirm_loaded(loaded_row), self.model.keep_quota())

    @rule()
    def learner_dies(self) -> None:
        for chunk in self.model.chunks:
            chunk.told = chunk.loaded = False
        self.expect(self.index.forget_learner(), self.model.keep_quota())

    @rule(data=st.data())
    def consume(self, data: st.DataObject) -> None:
        below = data.draw(st.integers(self.index.first_live_row, self.model.next_row))
        self.model.evict_below(below)
        self.expect(self.index.consume(below), self.model.delete_what_nobody_needs())

    @precondition(lambda self: self.sequence > 0)
    @rule(data=st.data())
    def quarantine(self, data: st.DataObject) -> None:
        chunk = data.draw(st.sampled_from(self.model.chunks))
        chunk.live = set()
        self.expect(self.index.quarantine(chunk.meta.file), self.model.delete_what_nobody_needs())

    def expect(self, deletable: list[str], expected: set[str]) -> None:
        assert len(deletable) == len(set(deletable)), "a file was reported twice"
        assert set(deletable) == expected

    @invariant()
    def numbers_agree(self) -> None:
        live = self.model.live()
        assert self.index.rows == len(live)
        assert self.index.next_row == self.model.next_row
        assert self.index.removed_rows == self.model.next_row - len(live)
        assert self.index.first_live_row <= min(live, default=self.model.next_row)
        assert self.index.payload_bytes == self.model.payload_bytes()
        assert self.index.files() == {chunk.meta.file for chunk in self.model.chunks if not chunk.deleted}
        assert self.index.sampled_rows == sum(self.model.uses.values())

    @invariant()
    def nothing_needed_is_deleted(self) -> None:
        for chunk in self.model.chunks:
            assert not chunk.deleted or not chunk.live
            assert not chunk.deleted or not chunk.told or chunk.loaded


IndexAgainstModel.TestCase.settings = settings(deadline=None, stateful_step_count=40)
TestIndexAgainstModel = IndexAgainstModel.TestCase


# --- single promises ------------------------------------------------------------------------------------------------
def test_a_learner_cannot_have_loaded_what_it_was_not_told() -> None:
    index = index_of(10)
    index.insert(meta_of(0, 5))
    with pytest.raises(ValueError, match="loaded rows below 5; it was told 0"):
        index.confirm_loaded(5)


def test_within_the_quota_there_is_room_for_what_is_on_its_way() -> None:
    """Two collectors may each have two payloads in data/ that are not announced yet."""
    limiter = SamplesPerInsertLimiter(None, 1)
    rng = np.random.default_rng(0)
    index = ReplayIndex(1000, UniformSampler(1000), limiter=limiter, rng=rng, quota_bytes=700, chunks_ahead=4)
    for sequence in range(20):
        index.insert(meta_of(sequence, 5))
        assert index.payload_bytes + 4 * 100 <= 700
    assert index.payload_bytes == 300
    index.hand_out_new()  # its learner does not load: nobody may go on once the room is used up
    index.insert(meta_of(20, 5))
    assert index.insertable_rows() == 0


def test_the_quota_waits_for_a_learner_that_loads_slowly_instead_of_dropping_everything() -> None:
    index = index_of(1000, quota_bytes=250)
    for sequence in range(2):
        index.insert(meta_of(sequence, 5))
    index.hand_out_new()
    assert index.insert(meta_of(2, 5)).deletable == []
    assert index.rows == 15
    assert index.insertable_rows() == 0
    assert index.confirm_loaded(10) == [file_of(0)]
    assert index.insertable_rows() > 0


def test_a_learner_that_waits_for_rows_is_not_waited_for() -> None:
    limiter = SamplesPerInsertLimiter(1.0, 100, request_rows=8, chunk_rows=5)
    index = ReplayIndex(1000, UniformSampler(1000), limiter=limiter, rng=np.random.default_rng(0), quota_bytes=250)
    for sequence in range(2):
        index.insert(meta_of(sequence, 5))
    index.hand_out_new()
    index.insert(meta_of(2, 5))
    assert index.payload_bytes > 250
    assert index.sampleable_rows() == 0
    assert index.insertable_rows() > 0


def test_chunks_that_can_never_be_held_are_refused() -> None:
    index = index_of(10, quota_bytes=250)
    with pytest.raises(ChunkTooLargeError, match=r"has 11 rows and the buffer holds 10: raise buffer\.capacity"):
        index.check_fits(meta_of(0, 11))
    with pytest.raises(ChunkTooLargeError, match=r"has 251 bytes and data/ may hold 250: raise buffer\.quota_bytes"):
        index.check_fits(meta_of(0, 1, payload_bytes=251))
    assert (index.rows, index.next_row) == (0, 0)


def test_priorities_of_a_slots_former_row_do_not_touch_the_new_one() -> None:
    index = index_of(10)
    index.insert(meta_of(0, 10))
    index.insert(meta_of(1, 10))
    index.update_priorities(np.arange(10), np.full(10, 99.0))
    assert index.sample(1, 50, train_iter=0, beta=0.4).priorities.max() == 1.0


@pytest.mark.parametrize("shape", [(2, 1), (3,), ()])
def test_priorities_that_do_not_match_their_rows_are_refused(shape: tuple[int, ...]) -> None:
    index = index_of(10)
    with pytest.raises(ValueError, match="alike"):
        index.update_priorities(np.zeros(2, np.int64), np.zeros(shape))


def test_the_limiter_is_obeyed() -> None:
    limiter = SamplesPerInsertLimiter(2.0, 10, request_rows=8, chunk_rows=4)
    index = ReplayIndex(100, UniformSampler(100), limiter=limiter, rng=np.random.default_rng(0), quota_bytes=10**6)
    index.insert(meta_of(0, 9))
    with pytest.raises(NotEnoughRowsError, match="1 rows were asked for and 0 may be drawn now"):
        index.sample(1, 1, train_iter=0, beta=0.0)
    index.insert(meta_of(1, 1))
    assert index.sampleable_rows() == 16
    index.sample(2, 8, train_iter=0, beta=0.0)
    assert index.sampleable_rows() == 0
    assert index.insertable_rows() == (16 + 16) // 2
    index.insert(meta_of(2, 8))
    assert index.achieved_samples_per_insert() == 2.0


def test_on_policy_rows_are_used_once_and_then_gone() -> None:
    index = index_of(100, FifoSampler())
    for sequence in range(3):
        index.insert(meta_of(sequence, 4))
    index.hand_out_new()
    assert index.sample(2, 4, train_iter=0, beta=0.0).rows.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    index.confirm_loaded(12)
    assert index.consume(8) == [file_of(0), file_of(1)]
    assert (index.rows, index.sampleable_rows()) == (4, 4)
    for wrong in (7, 13):
        with pytest.raises(ValueError, match=f"rows below {wrong} cannot be used up: live are 8 to 11"):
            index.consume(wrong)


def test_a_restarted_coordinator_goes_on_where_the_journal_ends() -> None:
    before = index_of(10)
    for sequence in range(5):
        before.insert(meta_of(sequence, 3))
    before.update_priorities(np.arange(5, 15), np.arange(5, 15, dtype=np.float32))
    live = before.hand_out_new()
    known = before.priorities()
    assert (known.first_row, known.priorities.tolist()) == (5, [*range(5, 15)])
    after = index_of(10)
    after.restore(live, next_row=before.next_row, first_live_row=before.first_live_row)
    assert (after.next_row, after.rows) == (before.next_row, before.rows)
    assert after.hand_out_new() == live
    before.quarantine(file_of(3))
    assert np.flatnonzero(np.isnan(before.priorities().priorities)).tolist() == [4, 5, 6], "not live any more"
    assert set(after.sample(1, 500, train_iter=0, beta=0.4).rows.ravel().tolist()) == set(range(5, 15))


# --- chunks that are computed again
@pytest.mark.parametrize("prioritized", [True, False])
def test_chunks_are_drawn_by_the_priorities_of_their_rows_and_drawing_is_not_counted(prioritized: bool) -> None:
    index = index_of(100, PrioritizedSampler(100, 1.0) if prioritized else UniformSampler(100))
    for sequence in range(4):
        index.insert(meta_of(sequence, 10))
    index.update_priorities(np.arange(40), np.repeat([1.0, 1.0, 0.0, 6.0], 10).astype(np.float32))
    rng = np.random.default_rng(0)
    drawn = [index.draw_chunk(rng, lambda chunk: chunk.meta.chunk.sequence != 1, draws=8) for _ in range(2_000)]
    counts = [sum(chunk is not None and chunk.first_row == 10 * n for chunk in drawn) for n in range(4)]
    expected = np.array([1, 0, 0, 6]) / 7 if prioritized else np.array([1, 0, 1, 1]) / 3
    np.testing.assert_allclose(np.array(counts) / sum(counts), expected, atol=0.05)
    assert index.sampled_rows == 0
    assert index.draw_chunk(rng, lambda chunk: False, draws=8) is None


def test_a_row_belongs_to_the_chunk_that_has_it_as_long_as_one_of_its_rows_is_live() -> None:
    index = index_of(20)
    for sequence in range(3):
        index.insert(meta_of(sequence, 8))  # the last evicts half of the first
    assert [None if (c := index.chunk_of(row)) is None else c.first_row for row in (0, 7, 8, 15, 16, 23, 24)] == [
        *(0, 0, 8, 8, 16, 16),
        None,
    ]
    index.quarantine(file_of(1))
    assert index.chunk_of(8) is None
    index.insert(meta_of(3, 8))
    assert index.chunk_of(0) is None


def test_a_new_learner_is_told_everything_live() -> None:
    index = index_of(10)
    for sequence in range(3):
        index.insert(meta_of(sequence, 4))
    index.hand_out_new()
    index.insert(meta_of(3, 4))
    assert index.forget_learner() == [file_of(0)]
    assert [chunk.first_row for chunk in index.hand_out_new()] == [4, 8, 12]
