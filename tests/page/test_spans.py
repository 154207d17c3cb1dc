"""When a role had nobody and when the disk held a run up, from the events of the run."""

from __future__ import annotations

import pytest

from remuda.page.series_reader import HELD_UP, MOST_SPANS, Spans, covered
from remuda.tests.page.folders import OTHER_WORKER, WORKER, event


def spans(*events: tuple[float, str, str | None]) -> Spans:
    found = Spans()
    for wall_s, kind, worker in events:
        found.take(event(wall_s, kind, None if worker is None else "collector", worker))  # type: ignore[arg-type]
    return found


def test_a_role_has_nobody_before_its_first_worker_and_while_all_are_gone() -> None:
    found = spans(
        (5.0, "worker_joined", WORKER),
        (10.0, "worker_died", WORKER),
        (12.0, "worker_joined", OTHER_WORKER),
        (13.0, "worker_joined", WORKER),
        (20.0, "worker_left", OTHER_WORKER),
        (30.0, "worker_failed", WORKER),
    )
    assert found.roles == ["collector"]
    assert found.lasting("collector", 33.0) == [(0.0, 5.0), (10.0, 12.0), (30.0, 33.0)]
    assert found.lasting("learner", 33.0) == []


def test_nobody_waits_for_workers_after_the_end() -> None:
    found = spans((0.0, "worker_joined", WORKER), (9.0, "run_ends", None), (9.5, "worker_left", WORKER))
    assert found.lasting("collector", 100.0) == []


def test_a_run_that_is_resumed_waits_again() -> None:
    found = spans(
        (0.0, "worker_joined", WORKER),
        (9.0, "run_ends", None),
        (9.5, "worker_left", WORKER),
        (14.0, "worker_joined", WORKER),
        (20.0, "worker_died", WORKER),
    )
    assert found.lasting("collector", 30.0)[-1] == (20.0, 30.0)


def test_a_worker_that_is_back_was_never_away() -> None:
    found = spans((0.0, "worker_joined", WORKER), (9.0, "worker_back", WORKER))
    assert found.lasting("collector", 30.0) == []


def test_the_disk_holds_a_run_up_until_it_goes_on() -> None:
    found = spans((3.0, "held_up", None), (5.0, "goes_on", None), (8.0, "held_up", None))
    assert found.lasting(HELD_UP, 10.0) == [(3.0, 5.0), (8.0, 10.0)]


def test_they_do_not_grow_without_end() -> None:
    found = spans(*((float(n), "held_up" if n % 2 else "goes_on", None) for n in range(10 * MOST_SPANS)))
    assert len(found.lasting(HELD_UP, 0.0)) == MOST_SPANS


@pytest.mark.parametrize(
    ("begin_s", "end_s", "share"),
    [(0.0, 10.0, 0.5), (0.0, 2.0, 0.0), (2.0, 4.0, 1.0), (3.0, 7.0, 0.5), (5.0, 5.0, 0.0)],
)
def test_the_share_that_is_covered(begin_s: float, end_s: float, share: float) -> None:
    assert covered([(2.0, 4.0), (6.0, 9.0)], begin_s, end_s) == pytest.approx(share)
