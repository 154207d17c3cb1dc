"""Leases, and the learner's requests: small records that the experiment keeps."""

from __future__ import annotations

from collections import Counter
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
from remuda.coordinator.leases import LeaseBook, Sender
from remuda.tests.coordinator.configs import config, holder, short_config
from remuda.tests.coordinator.simulation import Worker, World
from remuda.tests.keys import somebody_for
from remuda.training.effects import LogLine
from remuda.training.snapshot import LeaseSnapshot, PlaceSnapshot
from remuda.wire.channel import Channel
from remuda.wire.messages import AnyMessage, BatchRequest, Role, WorkerFailed

# --- leases ---


COUNTED_ROLES: tuple[Role, ...] = ("learner", "collector")


@given(st.data())
def test_a_book_says_what_a_plain_list_says_over_restarts_too(data: st.DataObject) -> None:
    """An index is the smallest free one, so a replacement has the seeds of the worker before it, but a new generation;
    generations begin beyond those before a resume."""
    book, numbers, begun = LeaseBook(first_generation=1_000), count(1), Counter[tuple[Role, int]]()
    plain: dict[int, LeaseSnapshot] = {}
    journaled: dict[int, LeaseSnapshot] = {}
    places: dict[str, PlaceSnapshot] = {}
    for _ in range(data.draw(st.integers(5, 30))):
        opened = [row for row in plain.values() if not row.over]
        act = data.draw(st.sampled_from(["open", "open", "close", "ready", "drain", "cpu", "restart"]))
        if act == "restart":
            snapshot = replace(book.snapshot(), leases=[*reversed(journaled.values())], places=[*places.values()])
            book = LeaseBook()
            book.restore([snapshot])
        elif act == "open" or not opened:
            role = data.draw(st.sampled_from(COUNTED_ROLES))
            who = holder(next(numbers), role)
            index = min({*range(len(opened) + 1)} - {row.index for row in opened if row.holder.role == role})
            plain[who.lease] = LeaseSnapshot(who, index, 1_000 + begun[role, index], False, False, False)
            begun[role, index] += 1
            assert book.open(who).policy_index == (index if role == "learner" else 0)
        else:
            former = data.draw(st.sampled_from(opened))
            plain[former.key] = changed(book, former, act, data)
        journaled |= {row.key: row for row in book.changes().put}
        places |= {place.key: place for place in book.changed_indices().put}
        assert plain == journaled == {row.key: row for row in book.rows()}
        assert places == {place.key: place for place in book.rows_of_indices()}
        check_book(book, plain)


def changed(book: LeaseBook, row: LeaseSnapshot, act: str, data: st.DataObject) -> LeaseSnapshot:
    """Change an open lease; return its new row."""
    lease = book.known(row.key)
    assert lease is not None
    if act == "close":
        assert book.close(lease.number) is lease
        return replace(row, over=True)
    if act == "ready":
        book.set_ready(lease)
        return replace(row, ready=True)
    if act == "drain":
        ready = data.draw(st.booleans())
        book.set_draining(lease, ready=ready)
        return replace(row, ready=ready, draining=True)
    cpu_us = data.draw(st.integers(0, 9))
    assert book.set_cpu(lease, cpu_us) == max(cpu_us - row.cpu_us, 0)
    return replace(row, cpu_us=max(cpu_us, row.cpu_us))


def check_book(book: LeaseBook, plain: dict[int, LeaseSnapshot]) -> None:
    """Compare the answers of a book with these rows."""
    opened = [row for row in plain.values() if not row.over]
    assert len(book) == len(opened)
    for role in COUNTED_ROLES:
        rows = sorted((row for row in opened if row.holder.role == role), key=lambda row: row.index)
        staying = [row.key for row in rows if not row.draining]
        assert [lease.number for lease in book.of(role)] == [row.key for row in rows]
        ready = [row.key for row in rows if row.ready and not row.draining]
        assert [lease.number for lease in book.ready(role)] == ready
        assert [lease.number for lease in book.last_staying(role, 2)] == staying[-2:][::-1]
        assert (book.count(role), book.count_staying(role)) == (len(rows), len(staying))
    for row in plain.values():
        sender = Sender(row.holder.worker, row.holder.incarnation)
        assert book.was_held_by(row.key, sender) is row.over
        assert not book.was_held_by(row.key, replace(sender, incarnation=sender.incarnation + 1))
        if row.over:
            assert book.close(row.key) is None
        elif row.holder.role == "learner":
            assert book.learner_of(row.index) is book.known(row.key)


def test_however_many_workers_come_and_go_the_newest_leases_are_kept() -> None:
    """And those that are not are forgotten by all: by the journal, and by whoever keeps whose lease it is."""
    forgotten: list[int] = []
    book = LeaseBook(on_forget=forgotten.append)
    for number in range(5_000):
        book.open(holder(number, "collector", f"c{number}"))
        book.close(number)
    kept = book.numbers
    assert len(kept) == leases.NUMBERS_KEPT + 1, "and one for each index"
    assert [*forgotten, *kept] == list(range(5_000))
    changes = book.changes()
    assert ([row.key for row in changes.put], list(changes.gone)) == (kept, forgotten)


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
