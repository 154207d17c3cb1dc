"""The herd by hosts and workers, the queue with missing workers and their holders, failures, and counts of chunks."""

from __future__ import annotations

from remuda.coordinator.scheduler import Demand, Holding, plan
from remuda.page.herd import MOST_FAILURES, failures_of, herd, lacks, newest, queue
from remuda.tests.client.statuses import status as experiment
from remuda.tests.page.folders import WORKER, event, status, uuid, worker

WHY = "waits for 1 learner (0 free) and 2 collectors (1 free) and 1 evaluator (0 free)"


def test_workers_and_hosts() -> None:
    run = uuid(9)
    found = herd(
        status(
            workers=[
                worker(1, state="busy", experiment=run, activity="waiting for credit", host="b", incarnation=3),
                worker(2, role="learner", state="busy", experiment=run, activity="training", cpu_cores=1.0),
                worker(3, state="stuck", experiment=uuid(8), activity="waiting for acknowledgements"),
            ]
        ),
        {run: "cartpole"},
    )
    assert [(each.run, each.waits_for, each.restarts) for each in found.workers] == [
        ("cartpole", "credit", 2),
        ("cartpole", None, 0),
        (None, "other", 0),
    ]
    b, vm = found.hosts
    assert (b.host, b.workers, b.restarts, b.roles) == ("b", 1, 2, {"collector": 1})
    assert (vm.host, vm.workers, vm.cpu_cores, vm.rss_bytes) == ("vm", 2, 1.25, 200 << 20)
    assert (vm.roles, vm.states) == ({"learner": 1, "collector": 1}, {"busy": 1, "stuck": 1})
    assert found.coordinator.pid == 7
    assert found.coordinator.refusals.no_key == 0


def test_it_is_the_scheduler_s_own_sentence() -> None:
    demand = Demand("x", 0, 1, {"learner": 1, "collector": 2}, {"learner": 1, "collector": 2}, started=False)
    holding = Holding("y", "other", 0, 0, {}, {"learner": 1})
    decided = plan([demand], {"collector": ["c"]}, [holding], {"learner": 1, "collector": 2})
    found = lacks(decided.waiting["x"])
    assert [(each.role, each.missing, each.needs, each.free) for each in found] == [
        ("learner", 1, 1, 0),
        ("collector", 1, 2, 1),
    ]


def test_the_order_in_which_they_get_workers_and_who_holds_them() -> None:
    low, high, urgent, done = uuid(1), uuid(2), uuid(3), uuid(4)
    found = queue(
        status(
            [
                experiment(id=low, name="low", state="running"),
                experiment(id=done, name="done", state="finished"),
                experiment(id=high, name="high", state="queued", waiting_for=WHY),
                experiment(id=urgent, name="urgent", state="queued", priority=5, waiting_for=WHY),
            ],
            [
                worker(1, role="learner", state="busy", experiment=low),
                worker(2, state="busy", experiment=low),
                worker(3),
                worker(4, role="evaluator", state="lost"),
            ],
        ),
        {low: "low", high: "sweep/high"},
    )
    assert [(each.name, each.place) for each in found.experiments] == [("urgent", 1), ("low", None), ("high", 2)]
    assert found.free == {"learner": 0, "collector": 1, "evaluator": 0, "reanalyzer": 0, "inference": 0}
    waiting = found.experiments[2]
    assert (waiting.run, waiting.why, waiting.priority) == ("sweep/high", WHY, 0)
    assert [(holder.run, holder.role, holder.workers) for holder in waiting.held_by] == [
        ("low", "learner", 1),
        ("low", "collector", 1),
    ]


def test_failures_are_those_of_events_and_the_newest_come_first() -> None:
    events = [event(1.0, "worker_joined", "learner", WORKER), event(2.0, "worker_died", "learner", WORKER, "why")]
    (failure,) = failures_of("a", events)
    assert (failure.run, failure.event, failure.worker, failure.text) == ("a", "worker_died", WORKER, "why")
    many = [each for n in range(MOST_FAILURES + 5) for each in failures_of(f"{n}", [event(float(n), "held_up")])]
    found = newest(many)
    assert len(found) == MOST_FAILURES
    assert found[0].run == f"{MOST_FAILURES + 4}"
