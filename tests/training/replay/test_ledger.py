"""The ledger: a chunk counts once, however often and in whatever order its announcements come."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from remuda.buffer.index import ChunkTooLargeError
from remuda.training.replay.ledger import REFUSALS_KEPT, Ledger, SequenceSet, TooManyGapsError, UnknownLeaseError
from remuda.training.snapshot import CountedSnapshot
from remuda.wire.messages import ChunkId, ChunkMeta, LedgerCounts, PolicyRef

WORKERS = ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002")


def meta(worker: int, incarnation: int, sequence: int, env_steps: int = 10, episodes: int = 0) -> ChunkMeta:
    return ChunkMeta(
        ChunkId(WORKERS[worker], incarnation, sequence),
        "f",
        env_steps - 1,
        env_steps,
        1,
        0,
        PolicyRef(),
        0.1,
        [1.0] * episodes,
        [5] * episodes,
    )


def opened(*incarnations: tuple[int, int]) -> tuple[Ledger, dict[tuple[str, int], int]]:
    """With a lease for each worker and incarnation."""
    ledger, leases = Ledger(), dict[tuple[str, int], int]()
    for lease, (worker, incarnation) in enumerate(incarnations, start=1):
        ledger.open(lease, WORKERS[worker], incarnation)
        leases[WORKERS[worker], incarnation] = lease
    return ledger, leases


def test_a_missing_chunk_belongs_to_the_newest_lease_that_may_have_it() -> None:
    ledger, _ = opened((0, 1))
    ledger.accept(meta(0, 1, 0), 1)
    ledger.accept(meta(0, 1, 2), 1)
    ledger.open(7, WORKERS[0], 1)
    found = [ledger.lease_of_missing(ChunkId(WORKERS[0], 1, number)) for number in range(5)]
    assert found == [None, 1, None, 7, 7]
    assert ledger.lease_of_missing(ChunkId(WORKERS[0], 2, 0)) is None, "nobody had a lease as this incarnation"
    assert ledger.accept(meta(0, 1, 1), 1)
    assert ledger.lease_of_missing(ChunkId(WORKERS[0], 1, 1)) is None


def test_after_a_forgotten_lease_the_first_chunk_shows_where_the_numbers_of_a_lease_begin() -> None:
    ledger, _ = opened((0, 1))
    ledger.accept(meta(0, 1, 0), 1)
    ledger.forget(1)
    ledger.open(2, WORKERS[0], 1)
    later = [ChunkId(WORKERS[0], 1, number) for number in (2, 4)]
    assert [ledger.lease_of_missing(chunk) for chunk in later] == [None, None]
    ledger.accept(meta(0, 1, 3), 2)
    assert [ledger.lease_of_missing(chunk) for chunk in later] == [None, 2]


def test_a_chunk_counts_only_under_a_lease_of_its_worker_that_is_known() -> None:
    ledger, _ = opened((0, 1))
    with pytest.raises(UnknownLeaseError, match="lease 2 is not known"):
        ledger.accept(meta(0, 1, 0), 2)
    with pytest.raises(
        UnknownLeaseError, match="lease 1 is that of 00000000-0000-4000-8000-000000000001, incarnation 1"
    ):
        ledger.accept(meta(0, 2, 0), 1)
    ledger.forget(1)
    with pytest.raises(UnknownLeaseError):
        ledger.accept(meta(0, 1, 0), 1)
    assert ledger.chunks == 0


def test_a_collector_that_is_lent_again_and_again_is_never_refused_and_leaves_no_trace() -> None:
    """It numbers its chunks over all runs that it works for, so each time it comes back there is a gap."""
    ledger = Ledger()
    for lease in range(1, 5_001):
        ledger.open(lease, WORKERS[0], 1)
        assert ledger.accept(meta(0, 1, 3 * lease), lease)
        assert ledger.accept(meta(0, 1, 3 * lease + 1), lease)
        if lease > 10:
            ledger.forget(lease - 10)
    assert ledger.chunks == 10_000
    rows = ledger.rows_of_leases()
    assert [row.lease for row in rows] == [*range(4_991, 5_001)]
    assert all(len(row.gaps) <= 1 for row in rows)


def test_a_chunk_that_comes_late_under_a_lease_that_is_over_counts_once_whatever_lease_it_is_said_under_again() -> None:
    """Its worker was taken for lost, came back and was given another lease."""
    ledger = Ledger()
    ledger.open(1, WORKERS[0], 1)
    for number in (0, 1):
        assert ledger.accept(meta(0, 1, number), 1)
    ledger.open(2, WORKERS[0], 1)
    assert ledger.accept(meta(0, 1, 3), 2)
    assert ledger.accept(meta(0, 1, 2), 1)
    for number, lease in itertools.product((0, 1, 2, 3), (1, 2)):
        assert not ledger.lacks(ChunkId(WORKERS[0], 1, number))
        assert not ledger.accept(meta(0, 1, number), lease)
    assert ledger.accept(meta(0, 1, 4), 2)
    assert (ledger.chunks, ledger.env_step) == (5, 50)


@given(st.data())
def test_files_of_known_leases_are_neither_counted_twice_nor_missed(data: st.DataObject) -> None:
    """Whatever a worker wrote for this run and others, in whatever order its words came, late ones too, and over
    restarts from the journaled changes."""
    ledger, number, written = Ledger(), 0, dict[int, list[int]]()
    counted: set[int] = set()
    known: list[int] = []
    journaled: dict[int, CountedSnapshot] = {}
    for lease in range(1, 6):
        ledger.open(lease, WORKERS[0], 1)
        known.append(lease)
        written[lease] = [*range(number, number + data.draw(st.integers(0, 3)))]
        number += len(written[lease]) + data.draw(st.integers(0, 2))  # the rest is another run's
        for each in data.draw(st.permutations(known)):
            for chunk in written[each][: data.draw(st.integers(0, 3))]:
                assert ledger.accept(meta(0, 1, chunk, episodes=1), each) is (chunk not in counted)
                counted.add(chunk)
        for each in data.draw(st.lists(st.sampled_from(known), unique=True, max_size=2)):
            ledger.forget(each)
            known.remove(each)
        changes = ledger.changes()
        journaled = {key: row for key, row in journaled.items() if key not in changes.gone}
        journaled |= {row.lease: row for row in changes.put}
        assert sorted(journaled.values(), key=lambda row: row.lease) == [*ledger.rows_of_leases()]
        if data.draw(st.booleans()):
            stored, ledger = ledger.snapshot(), Ledger()
            ledger.restore(replace(stored, counted=[*reversed(journaled.values())]))
            assert ledger.snapshot() == stored
    for chunks in written.values():
        for chunk in chunks:
            lacks = ledger.lacks(ChunkId(WORKERS[0], 1, chunk))
            assert not (lacks and chunk in counted)
            if len(known) == len(written) and chunk not in counted:
                assert lacks
    assert not ledger.lacks(ChunkId(WORKERS[1], 1, 0)), "nobody knows a lease of this worker"


@given(st.integers(0, 2**32), st.integers(1, 5))
def test_repeated_and_shuffled_announcements_count_to_the_step(seed: int, most: int) -> None:
    rng = random.Random(seed)
    chunks = [
        meta(worker, incarnation, sequence, env_steps=rng.randint(1, 100))
        for worker in (0, 1)
        for incarnation in (1, 2)
        for sequence in range(rng.randint(0, 8))
    ]
    arrivals = [chunk for chunk in chunks for _ in range(rng.randint(1, most))]
    rng.shuffle(arrivals)
    ledger, leases = opened((0, 1), (0, 2), (1, 1), (1, 2))
    accepted = sum(ledger.accept(each, leases[each.chunk.worker, each.chunk.incarnation]) for each in arrivals)
    assert accepted == len(chunks) == ledger.chunks
    assert ledger.env_step == sum(chunk.env_steps for chunk in chunks)


def too_large(meta: ChunkMeta) -> None:
    if meta.env_steps > 50:
        raise ChunkTooLargeError("too large")


def test_how_chunks_fared_is_counted_and_restored() -> None:
    ledger, _ = opened((0, 1), (1, 1))
    for lease, chunk in ((1, meta(0, 1, 0)), (1, meta(0, 1, 1)), (2, meta(1, 1, 0))):
        assert ledger.accept(replace(chunk, payload_bytes=7), lease, too_large)
    for _ in range(3):
        assert not ledger.accept(meta(0, 1, 1), 1, too_large)
    ledger.lost_collector()
    assert ledger.counts == LedgerCounts(accepted=3, repeated=3, refused=0, refused_env_steps=0, lost_collectors=1)
    again = Ledger()
    again.restore(replace(ledger.snapshot(), counted=list(ledger.rows_of_leases())))
    assert again.counts == ledger.counts
    assert (ledger.payload_bytes, again.payload_bytes) == (21, 21)


def test_a_refused_chunk_counts_once_however_often_it_comes_even_after_a_restart() -> None:
    ledger, _ = opened((0, 1))
    ledger.accept(meta(0, 1, 0), 1, too_large)
    ledger.changes()
    for number in (1, 2, 1, 2):
        with pytest.raises(ChunkTooLargeError):
            ledger.accept(meta(0, 1, number, env_steps=60), 1, too_large)
    (row,) = ledger.changes().put
    assert (ledger.counts.refused, ledger.counts.refused_env_steps) == (2, 120)
    assert row.refused == [1, 2]
    again = Ledger()
    again.restore(replace(ledger.snapshot(), counted=[row]))
    with pytest.raises(ChunkTooLargeError):
        again.accept(meta(0, 1, 2, env_steps=60), 1, too_large)
    assert again.counts == ledger.counts
    assert again.env_step == 10
    for number in range(3, 3 + REFUSALS_KEPT):
        with pytest.raises(ChunkTooLargeError):
            again.accept(meta(0, 1, number, env_steps=60), 1, too_large)
    (row,) = again.rows_of_leases()
    assert row.refused == [*range(3, 3 + REFUSALS_KEPT)], "only the newest are remembered"


MAX_GAPS = 4


class AgainstAPlainSet(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model: set[int] = set()
        self.sequence = SequenceSet(max_gaps=MAX_GAPS)

    @rule(number=st.integers(0, 25))
    def add(self, number: int) -> None:
        gaps_then = _gaps(self.model | {number})
        if len(gaps_then) > MAX_GAPS:
            with pytest.raises(TooManyGapsError):
                self.sequence.add(number)
            return
        assert self.sequence.add(number) is (number not in self.model)
        self.model.add(number)

    @invariant()
    def says_what_the_set_says(self) -> None:
        assert self.sequence.high_water == max(self.model, default=-1)
        assert self.sequence.missing == _gaps(self.model)
        for number in range(-1, 27):
            assert (number in self.sequence) is (number in self.model)


TestAgainstAPlainSet = AgainstAPlainSet.TestCase


def _gaps(seen: set[int]) -> tuple[range, ...]:
    """The maximal runs of numbers from 0 on, below the highest seen, that were not seen."""
    gaps: list[range] = []
    start = 0
    for number in sorted(seen):
        if number > start:
            gaps.append(range(start, number))
        start = number + 1
    return tuple(gaps)


def test_a_huge_hole_is_one_gap() -> None:
    sequence = SequenceSet(max_gaps=1)
    assert sequence.add(2**53)
    assert sequence.missing == (range(0, 2**53),)
    assert sequence.high_water == 2**53
