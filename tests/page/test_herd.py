"""The herd by hosts and workers, with what each worker waits for, and the newest failures."""

from __future__ import annotations

import pytest

from remuda.page.herd import MOST_FAILURES, failures_of, herd, newest, waits_for
from remuda.tests.page.folders import WORKER, event
from remuda.tests.page.statuses import status, uuid, worker


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
    assert found.coordinator.refusals["no_key"] == 0


@pytest.mark.parametrize(
    ("activity", "wait"),
    [
        ("waiting for batches", "batches"),
        ("waiting for an evaluation", "batches"),
        ("waiting for its files to be sent", "other"),
        ("training", None),
        ("collecting", None),
    ],
)
def test_what_a_worker_waits_for_by_what_it_says(activity: str, wait: str | None) -> None:
    assert waits_for(activity) == wait


def test_an_idle_worker_waits_for_nothing() -> None:
    (view,) = herd(status(workers=[worker(1, activity="waiting for work")]), {}).workers
    assert view.waits_for is None


def test_failures_are_those_of_events_and_the_newest_come_first() -> None:
    events = [event(1.0, "worker_joined", "learner", WORKER), event(2.0, "worker_died", "learner", WORKER, "why")]
    (failure,) = failures_of("a", events)
    assert (failure.run, failure.event, failure.worker, failure.text) == ("a", "worker_died", WORKER, "why")
    many = [each for n in range(MOST_FAILURES + 5) for each in failures_of(f"{n}", [event(float(n), "held_up")])]
    found = newest(many)
    assert len(found) == MOST_FAILURES
    assert found[0].run == f"{MOST_FAILURES + 4}"
