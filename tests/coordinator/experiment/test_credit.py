"""Credit: collectors stay within the allowance, nobody starves, grants never shrink."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.coordinator.experiment.collecting import ANNOUNCED_AHEAD, CreditBook
from remuda.coordinator.experiment.policy import PolicyTraining
from remuda.coordinator.leases import LeaseBook
from remuda.policy.algorithms import declaration
from remuda.tests.coordinator.configs import config
from remuda.training.replay.accounting import CHUNKS_AHEAD
from remuda.training.run_snapshot import Identity
from remuda.training.status import RunState

CHUNK = 64


def test_each_collector_gets_a_chunk_to_fill_and_one_on_its_way() -> None:
    book = CreditBook(CHUNK)
    book.open(1)
    book.open(2)
    assert book.extend(10**9) == [1, 2]
    assert book.granted(1) == book.granted(2) == CHUNKS_AHEAD * CHUNK
    assert book.extend(10**9) == []


def test_an_allowance_below_a_chunk_still_lets_one_go() -> None:
    book = CreditBook(CHUNK)
    book.open(1)
    assert book.extend(1) == [1]
    assert book.granted(1) == CHUNK


def test_what_comes_under_a_closed_lease_stays_bounded_by_what_it_was_granted() -> None:
    """A worker whose lease was over could announce as many chunks as it liked."""
    book = CreditBook(CHUNK)
    book.open(1)
    book.extend(2 * CHUNK)
    book.close(1)
    late = 0
    while not book.is_beyond(1, CHUNK):
        book.arrived(1, CHUNK)
        late += 1
    assert late == CHUNKS_AHEAD + ANNOUNCED_AHEAD
    assert (book.outstanding, book.granted(1), book.extend(10**9)) == (0, 0, [])
    again = CreditBook(CHUNK)
    again.restore(book.rows())
    assert again.is_beyond(1, CHUNK)
    assert (again.outstanding, again.granted(1), again.extend(10**9)) == (0, 0, [])
    book.forget(1)
    assert book.rows() == ()
    assert book.changes().gone == (1,)


def test_what_is_late_is_free_for_others_and_still_counts_when_it_comes() -> None:
    book = CreditBook(CHUNK)
    book.open(1)
    book.extend(2 * CHUNK)
    book.open(2)
    assert book.extend(2 * CHUNK) == []
    assert book.wait_no_longer() == 1
    assert book.outstanding == 0
    assert book.extend(2 * CHUNK) == [2]
    assert (book.granted(1), book.granted(2)) == (2 * CHUNK, 2 * CHUNK)
    assert not book.is_beyond(1, CHUNK)
    book.arrived(2, 2 * CHUNK)
    assert book.extend(CHUNK) == [2], "the late one gets nothing"
    book.arrived(2, CHUNK)
    book.arrived(1, CHUNK)
    assert book.outstanding == CHUNK, "the rest of it is waited for again"
    assert book.extend(3 * CHUNK) == [1, 2]


def test_all_that_are_late_wait_until_they_deliver() -> None:
    book = CreditBook(CHUNK)
    for lease in (1, 2):
        book.open(lease)
    book.extend(10**9)
    assert book.wait_no_longer() == 2
    assert book.extend(10**9) == []
    book.close(1)
    book.arrived(1, CHUNK)
    assert book.outstanding == 0
    book.arrived(2, 2 * CHUNK)
    assert book.extend(10**9) == [2]


def test_a_chunk_larger_than_granted_does_not_block_the_next_grant() -> None:
    book = CreditBook(CHUNK)
    book.open(1)
    book.extend(CHUNK)
    book.arrived(1, CHUNK + 7)
    assert book.outstanding == 0
    assert book.extend(CHUNK) == [1]
    assert book.granted(1) == 2 * CHUNK + 7


@given(st.lists(st.tuples(st.sampled_from(["arrive", "extend"]), st.integers(1, 3), st.integers(0, 500)), max_size=60))
def test_grants_never_shrink_and_exceed_by_less_than_a_chunk(actions: list[tuple[str, int, int]]) -> None:
    book = CreditBook(CHUNK)
    for lease in (1, 2, 3):
        book.open(lease)
    before = {lease: 0 for lease in (1, 2, 3)}
    for action, lease, amount in actions:
        if action == "arrive":
            book.arrived(lease, min(amount, CHUNK + 8))
        else:
            outstanding = book.outstanding
            book.extend(amount)
            assert book.outstanding <= max(outstanding, amount + CHUNK - 1)
        for each, granted in before.items():
            assert book.granted(each) >= granted
            before[each] = book.granted(each)


def test_what_little_there_is_goes_round() -> None:
    """Held back by a slow learner, every collector gets its turn, not always the one with the lowest lease."""
    book = CreditBook(64)
    for lease in (3, 1, 2):
        book.open(lease)
    turns: list[int] = []
    for _ in range(9):
        (lease,) = book.extend(64)
        turns.append(lease)
        book.arrived(lease, 64)
    assert turns == [1, 2, 3] * 3
    book.open(4)
    for _ in range(5):
        (lease,) = book.extend(64)
        turns.append(lease)
        book.arrived(lease, 64)
    assert turns[9:] == [4, 1, 2, 3, 4], "a late comer does not have to catch up"


@pytest.mark.parametrize("env_step", [0, 300, 599, 600, 5_000])
def test_collectors_explore_by_the_schedule_and_afterwards_by_its_last_values(env_step: int) -> None:
    identity = Identity("run", "x", "/runs/x", "", priority=0, submitted=0)
    policy = PolicyTraining(identity, config(), RunState(), LeaseBook(), 0.0, None, policy_index=0, serial=False)
    policy.replay.ledger.env_step = env_step
    assert policy.exploration() == declaration(config()).exploration_at(env_step) != {}
