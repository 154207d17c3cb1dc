"""Work in the background: in order where it belongs together, side by side where it does not, and bounded."""

from __future__ import annotations

import threading

import pytest

from remuda.coordinator.disk.jobs import WAITING_AT_MOST, BusyError, Jobs
from remuda.tests.patience import HANG_S, until


def test_calls_of_one_key_run_in_order_and_those_of_another_do_not_wait_for_them() -> None:
    jobs, gate, other = Jobs(), threading.Event(), threading.Event()
    done: list[int] = []
    jobs.put("slow", lambda: done.append(0 if gate.wait(HANG_S) else -1))
    for number in (1, 2, 3):
        jobs.put("slow", lambda number=number: done.append(number))  # type: ignore[misc]
    jobs.put("quick", other.set)
    assert other.wait(HANG_S)
    assert done == []
    gate.set()
    until(lambda: len(done) == 4, "the slow ones")
    assert done == [0, 1, 2, 3]


def test_what_waits_is_bounded_and_refused_beyond_that() -> None:
    jobs, gate = Jobs(), threading.Event()
    done: list[int] = []
    jobs.put("slow", lambda: done.append(0 if gate.wait(HANG_S) else -1))
    until(lambda: not jobs.waiting("slow"), "the first one is under way")
    for number in range(WAITING_AT_MOST):
        jobs.put("slow", lambda number=number: done.append(number))  # type: ignore[misc]
    with pytest.raises(BusyError, match=f"{WAITING_AT_MOST} requests wait already"):
        jobs.put("slow", lambda: done.append(-1))
    gate.set()
    until(lambda: len(done) > WAITING_AT_MOST, "those that were taken")


def test_one_may_wait_for_the_calls_of_a_key_and_not_for_ever() -> None:
    jobs, gate = Jobs(), threading.Event()
    done: list[int] = []
    jobs.put("slow", lambda: done.append(0 if gate.wait(HANG_S) else -1))
    assert jobs.wait("quick", 0.0), "there is none"
    assert not jobs.wait("slow", 0.01)
    gate.set()
    assert jobs.wait("slow", HANG_S)
    assert done == [0]
