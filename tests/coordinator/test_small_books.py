"""Leases, and the learner's requests: small records that the experiment keeps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.coordinator.experiment.flow import RequestQueue
from remuda.coordinator.leases import LeaseBook
from remuda.tests.coordinator.holders import holder
from remuda.wire.messages import BatchRequest

# --- leases ---


def test_indices_are_the_smallest_free_ones_per_role() -> None:
    book = LeaseBook()
    assert [book.open(holder(number, "collector", f"c{number}")).index for number in (1, 2, 3)] == [0, 1, 2]
    assert book.open(holder(4, "evaluator", "e")).index == 0
    book.close(2)
    assert book.open(holder(5, "collector", "c5")).index == 1  # in the place of the one that went, with its seeds
    assert book.open(holder(6, "collector", "c6")).index == 3
    assert [(lease.number, lease.index) for lease in book.of("collector")] == [(1, 0), (5, 1), (3, 2), (6, 3)]


def test_a_replacement_has_the_place_but_not_the_generation_of_the_one_before() -> None:
    book = LeaseBook()
    book.open(holder(1, "collector", "a"))
    second = book.open(holder(2, "collector", "b"))
    book.close(2)
    replacement = book.open(holder(3, "collector", "c"))
    assert (second.index, second.generation) == (1, 0)
    assert (replacement.index, replacement.generation) == (1, 1)


def test_generations_of_a_resumed_run_begin_beyond_those_before_it_also_over_a_restart() -> None:
    book = LeaseBook(first_generation=1_000)
    book.open(holder(1, "collector", "a"))
    book.open(holder(2, "collector", "b"))
    book.close(1)
    restarted = LeaseBook()
    restarted.restore(replace(book.snapshot(), leases=[*book.rows()], places=[*book.rows_of_indices()]))
    generations = [
        (lease.index, lease.generation) for lease in (restarted.open(holder(n, "collector", "c")) for n in (3, 4))
    ]
    assert generations == [(0, 1_001), (2, 1_000)]


def test_however_many_workers_come_and_go_the_newest_leases_are_kept() -> None:
    """And those that are not are forgotten by all: by the journal, and by whoever keeps whose lease it is."""
    forgotten: list[int] = []
    book = LeaseBook(on_forget=forgotten.append)
    for number in range(5_000):
        book.open(holder(number, "collector", f"c{number}"))
        book.close(number)
    kept = book.numbers
    assert 100 < len(kept) < 2_500
    assert [*forgotten, *kept] == list(range(5_000))
    assert not set(forgotten) & {row.key for row in book.changes().put}


# --- requests ---


def request(number: int) -> BatchRequest:
    return BatchRequest(1, number, number, 2, 8, 0, 0, np.empty(0, np.int64), np.empty(0, np.float32))


@given(st.permutations(range(1, 7)), st.lists(st.integers(1, 6), max_size=10))
def test_requests_are_answered_in_order_and_once(order: list[int], repeated: list[int]) -> None:
    queue = RequestQueue()
    answered: list[int] = []
    for number in [*order, *repeated]:
        queue.add(request(number))
        while (following := queue.next) is not None:
            answered.append(following.request)
            queue.answered()
    assert answered == [1, 2, 3, 4, 5, 6]
    assert queue.next is None
