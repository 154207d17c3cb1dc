"""What a turn costs is what has changed in it: not how many collectors there are, and not how many workers are free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from remuda.buffer.index import ReplayIndex
from remuda.buffer.limiter import SamplesPerInsertLimiter
from remuda.buffer.samplers import FifoSampler
from remuda.coordinator import assignments
from remuda.coordinator.experiment import collecting
from remuda.coordinator.experiment.collecting import CreditBook
from remuda.coordinator.leases import LeaseBook
from remuda.coordinator.registry import Registry
from remuda.coordinator.scheduler import Demand, Holding, Plan, plan
from remuda.coordinator.settings import Limits
from remuda.tests.buffer.chunks import meta_of
from remuda.tests.coordinator.configs import config, holder
from remuda.tests.coordinator.simulation import STEP_S, CollectorWork, World
from remuda.tests.coordinator.work import operations
from remuda.training.replay.accounting import CHUNKS_AHEAD
from remuda.wire.messages import PROTOCOL_VERSION, Beat, PolicyRef, Register

FEW, MANY = 50, 800
MORE = 1.5
"""Where a turn may cost so much more with sixteen times as many: a heap is a little deeper."""


def test_what_credit_keeps_does_not_grow_while_little_of_it_goes_round() -> None:
    book = CreditBook(64)
    for lease in range(10):
        book.open(lease)
    for _ in range(5_000):
        for lease in book.extend(64):
            book.arrived(lease, 64)
    assert len(book._candidates) < 200  # pyright: ignore[reportPrivateUsage]


def test_a_lease_costs_as_much_to_open_and_close_however_many_there_are() -> None:
    def per_lease(count: int) -> float:
        book = LeaseBook()
        for number in range(count):
            book.open(holder(number, "collector", str(number)))

        def turn() -> None:
            for number in range(0, 20, 2):
                book.close(number)
            for number in range(count, count + 10):
                assert book.open(holder(number, "collector", str(number))).index < 20
            assert book.count_staying("collector") == count

        return operations(turn)

    assert per_lease(MANY) < MORE * per_lease(FEW)


def test_a_plan_costs_what_it_deals_and_not_what_is_free_or_could_be_lent() -> None:
    def cost(count: int) -> int:
        free = {"learner": ["l"], "evaluator": ["e"], "collector": dict.fromkeys(map(str, range(count)))}
        small = Demand("small", 0, 1, {"collector": 1}, {"collector": 2}, resting=frozenset("0"))
        lacking = Demand("lacking", 0, 2, {"learner": 2}, {"learner": 2})
        holding = Holding("rich", "rich", 0, 0, {"collector": count})
        return operations(lambda: plan([small, lacking], free, [holding]))  # type: ignore[arg-type]

    assert cost(MANY) < MORE * cost(FEW)


def test_a_long_queue_is_planned_less_often_and_a_free_worker_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans take time for each queued run: planning 20 times a second, 500 of these took half a core."""
    world = World(config()).started(learners=0)
    for number in range(59):
        world.submit(f"queued {number}")
    world.steps(4)
    plans: list[int] = []

    def counted(demands: Sequence[Demand], *more: Any) -> Plan:
        plans.append(len(demands))
        return plan(demands, *more)

    monkeypatch.setattr(assignments, "plan", counted)
    world.steps(40)
    assert set(plans) == {60}
    assert len(plans) <= 40 * STEP_S / (60 * assignments.PAUSE_PER_RUN_S) + 1
    world.add("learner", 1)
    world.steps(2)
    assert [worker.lease > 0 for worker in world.coordinator.registry.holders.values()].count(True) >= 3
    plans.clear()
    for number in range(100):
        world.add("collector", number + 10)
    world.steps(2)
    assert world.coordinator.registry.count("collector") == 102
    assert 1 <= len(plans) <= 3, "one plan for all that join together"


def test_workers_of_a_run_that_is_over_do_not_wait_for_the_next_look_at_a_long_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assignments, "PAUSE_PER_RUN_S", 1_000.0)
    world = World(config()).started(name="first")
    world.submit("second")
    world.run()
    assert [world.experiment(position).state for position in (0, 1)] == ["finished", "finished"]


def test_workers_that_beat_are_not_looked_at_in_every_look() -> None:
    def cost(count: int) -> int:
        registry, now_s = Registry(Limits()), 0.0
        for number in range(count):
            uuid = f"00000000-0000-4000-8000-{number:012x}"
            message = Register(uuid, 1, "collector", "here", number, PROTOCOL_VERSION, "0.1")
            registry.admit(message, f"{uuid}:1".encode(), now_s)
        for worker in registry:
            registry.give(worker, worker.pid + 1, {"preparing": 1_800.0}, now_s)
        for worker in registry:
            worker.last_message_s = 5.0
            registry.beat(worker, Beat(1, "collecting", worker.lease), 5.0)
        return operations(lambda: (registry.lost(5.25), registry.newly_stuck(5.25), registry.hopeless(5.25)))

    assert cost(MANY) < MORE * cost(FEW)


def test_a_large_assignment_is_dealt_over_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "GRANTS_PER_TURN", 5)
    world = World(config(collector={"count": 14, "minimum": 14, "chunk_env_steps": 64}))
    world.beat_interval_s = 5.0
    world.herd(collectors=14)
    world.step()
    world.submit()
    world.step()  # a turn in which the submission comes in, and one in which time passes
    assert world.coordinator.registry.count("collector") == 14
    registered = [*world.coordinator.registry]
    assert sum(worker.lease > 0 for worker in registered) == 10
    unlucky = next(worker for worker in registered if not worker.lease)
    world.workers[unlucky.uuid].leave()  # before it is told that it was meant for the run
    world.step()
    world.step()
    assert sum(worker.lease > 0 for worker in world.coordinator.registry) == 15
    world.add("collector", 100)
    world.run(3_000)
    assert world.experiment().state == "finished"


def test_the_rest_of_the_credit_is_handed_out_although_nobody_says_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "GRANTS_PER_TURN", 1)
    monkeypatch.setattr(CollectorWork, "step", lambda _: None)  # neither is a chunk collected
    collector = {"count": 20, "minimum": 20, "chunk_env_steps": 64}
    world = World(config(collector=collector, buffer={"samples_per_insert": None}))
    world.herd(collectors=20)
    world.step()
    world.submit()
    world.steps(40)
    working = [worker.work for worker in world.workers.values() if isinstance(worker.work, CollectorWork)]
    assert [work.credit for work in working] == [CHUNKS_AHEAD * 64] * 20


def test_looking_for_stale_chunks_costs_nothing_while_the_policy_stays_the_same() -> None:
    """On-policy this is asked with each chunk that comes, and looked at all of them each time."""

    def cost(count: int) -> int:
        limiter = SamplesPerInsertLimiter(samples_per_insert=None, min_rows=1, request_rows=1)
        index = ReplayIndex(10_000, FifoSampler(), limiter=limiter, rng=np.random.default_rng(0), quota_bytes=10**9)
        for sequence in range(count):
            index.insert(meta_of(sequence, 2, train_iter=5))
        assert index.drop_older_than(PolicyRef(1, 5)) == (0, [])
        index.insert(meta_of(count, 2, train_iter=5))
        spent = operations(lambda: index.drop_older_than(PolicyRef(1, 5)))
        index.insert(meta_of(count + 1, 2, train_iter=4))
        assert index.drop_older_than(PolicyRef(1, 5))[0] == 2
        assert index.drop_older_than(PolicyRef(1, 6))[0] == 2 * (count + 1)
        return spent

    assert cost(MANY) < MORE * cost(FEW)
