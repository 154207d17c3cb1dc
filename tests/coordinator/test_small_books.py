"""Leases, and the learner's requests: small records that the experiment keeps."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.coordinator import assignments, failures, leases
from remuda.coordinator import effects as fx
from remuda.coordinator.events import Received
from remuda.coordinator.experiment.flow import RequestQueue
from remuda.coordinator.leases import LeaseBook
from remuda.tests.coordinator.configs import config, holder, short_config
from remuda.tests.coordinator.simulation import Worker, World
from remuda.tests.keys import somebody_for
from remuda.training.effects import LogLine
from remuda.wire.channel import Channel
from remuda.wire.messages import AnyMessage, BatchRequest, WorkerFailed


# --- leases ---
def test_indices_are_the_smallest_free_ones_per_role() -> None:
    book = LeaseBook()
    assert [book.open(holder(number, "collector", f"c{number}")).index for number in (1, 2, 3)] == [0, 1, 2]
    assert book.open(holder(4, "evaluator", "e")).index == 0
    book.close(2)
    assert book.open(holder(5, "collector", "c5")).index == 1  # in the place of the one that went, with its seeds
    assert book.open(holder(6, "collector", "c6")).index == 3
    assert [(lease.number, lease.index) for lease in book.of("collector")] == [(1, 0), (5, 1), (3, 2), (6, 3)]


def test_generations_of_a_resumed_run_begin_beyond_those_before_it_also_over_a_restart() -> None:
    book = LeaseBook(first_generation=1_000)
    book.open(holder(1, "collector", "a"))
    book.open(holder(2, "collector", "b"))
    book.close(1)
    restarted = LeaseBook()
    restarted.restore([replace(book.snapshot(), leases=[*book.rows()], places=[*book.rows_of_indices()])])
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


KEPT = 12
SOMEBODY = count(1)


@pytest.fixture(autouse=True)
def few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "LEASES_KEPT", KEPT)


@pytest.fixture(autouse=True)
def deaths_end_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collectors die at once, again and again: that is not what these tests are about."""
    monkeypatch.setattr(failures, "FAILURES_IN_A_ROW", 10**6)


def said_by_somebody(world: World, message: AnyMessage, worker: Worker | None = None) -> list[fx.Effect]:
    """What a message leads to of a worker that is not registered any more, and that has said nothing before."""
    who = "somebody:1" if worker is None else f"{worker.uuid}:{worker.incarnation}"
    peer = f"{who}:gone:{next(SOMEBODY)}".encode()
    return world.coordinator.handle(
        Received(peer, Channel().post(message, world.now_s), somebody_for(message)), world.now_s
    )


def is_known(world: World, lease: int, worker: Worker | None = None) -> bool:
    """Whether this worker finds a run to tell of what happened under this lease, which is over."""
    return any(isinstance(e, LogLine) for e in said_by_somebody(world, WorkerFailed(lease, "gone", "nowhere"), worker))


def lease_again(world: World) -> int:
    """The collector dies and is started again; gives its new lease."""
    fresh = world.restart(world.of("collector")[0])
    end_s = world.now_s + 60.0
    while not fresh.lease:
        assert world.now_s < end_s, world.said[-3:]
        world.step()
    return fresh.lease


def busy_world() -> World:
    world = World(config(collector={"count": 1, "chunk_env_steps": 64})).started(collectors=1)
    while not (world.workers and world.of("collector")[0].lease):
        world.step()
    return world


def test_of_runs_that_are_over_the_newest_are_known() -> None:
    world = World(short_config())
    world.herd(collectors=2)
    newest = 0
    for number in range(15):
        world.submit(f"run {number}")
        world.step()
        world.run()
        newest = max(worker.assignments[-1] for worker in world.workers.values() if worker.assignments)
        known = [lease for lease in range(1, newest + 1) if is_known(world, lease)]
        assert len(known) < 2 * KEPT
        assert known == list(range(newest - len(known) + 1, newest + 1))
        assert len(known) >= min(KEPT, newest)
    assert newest > 4 * KEPT, "it has come to forgetting more than once"


@pytest.mark.parametrize("restarted", [False, True])
def test_of_a_run_that_goes_on_all_are_known_that_its_journal_has(restarted: bool) -> None:
    world = busy_world()
    over: list[tuple[int, Worker]] = []
    for _ in range(4 * KEPT):
        over.append((world.of("collector")[0].lease, world.of("collector")[0]))
        newest = lease_again(world)
    if restarted:
        world.crash()
    assert all(is_known(world, lease, worker) for lease, worker in over)
    assert not is_known(world, newest + 1, world.of("collector")[0])


def test_the_oldest_lease_goes_on_over_a_restart_however_many_came_and_went(monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner's is the first; nothing that it said was heard, once its number was not among the newest."""
    monkeypatch.setattr(leases, "NUMBERS_KEPT", 3)
    world = busy_world()
    for _ in range(2 * KEPT + 3):
        lease_again(world)
    learner = next(worker for worker in world.workers.values() if worker.role == "learner")
    first = learner.lease
    world.crash()
    world.run()
    assert learner.assignments == [first], "it was not replaced"
    assert world.experiment().state == "finished"
    assert world.experiment().env_step == world.unique_env_steps()
