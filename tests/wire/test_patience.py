"""How long a silent coordinator is waited for, and the messages meanwhile: with every silence given."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from remuda.tests.worker.fake_coordinator import UUID, FakeCoordinator
from remuda.wire.messages import PROTOCOL_VERSION, Register
from remuda.wire.patience import COORDINATOR_TIMEOUT_S, CoordinatorLostError, Patience
from remuda.worker.session import Connector, Pulse, Session

FIVE_MINUTES_S = 300.0


def test_it_says_that_it_waits_once_and_then_now_and_then() -> None:
    said: list[str] = []
    patience = Patience(3_600.0, said.append)
    for silence_s in range(1_000):
        patience.silent(silence_s)
    silences = ["15 s", "30 s", "60 s", "2 min", "4 min", "8 min", "16 min"]
    assert said == [f"the coordinator has been silent for {each}; waiting for it, at most 60 min" for each in silences]


def test_it_says_that_the_coordinator_is_back_only_if_it_had_said_that_it_waits() -> None:
    said: list[str] = []
    patience = Patience(3_600.0, said.append)
    patience.silent(10.0)
    patience.heard(10.0)
    assert said == []
    patience.silent(20.0)
    patience.heard(FIVE_MINUTES_S)
    patience.heard(0.1)
    assert said[1:] == ["the coordinator is back after 5 min"]


def test_at_the_limit_it_is_over() -> None:
    patience = Patience(90.0)
    patience.silent(90.0)
    with pytest.raises(CoordinatorLostError, match=r"for 90\.5 s \(the limit is 90 s\)"):
        patience.silent(90.5)


@contextmanager
def with_a_coordinator(patience: Patience, *, silent: bool) -> Generator[Session]:
    with FakeCoordinator() as coordinator:
        coordinator.silent = silent
        register = Register(UUID, 1, "collector", "here", 7, PROTOCOL_VERSION, "0.1")
        connector = Connector(coordinator.connection, register, lambda: None)
        session = Session(connector, register, Pulse(), lambda message: None, patience)
        try:
            yield session
        finally:
            session.close()


def turn_for(session: Session, begun_s: float, seconds: float) -> float:
    """Turn it every two seconds, with the time given; returns when that ended."""
    for second in range(2, int(seconds) + 1, 2):
        session.turn(begun_s + second)
    return begun_s + int(seconds)


def test_a_coordinator_that_is_silent_for_five_minutes_is_waited_for() -> None:
    with with_a_coordinator(Patience(), silent=True) as session:
        now_s = turn_for(session, time.monotonic(), FIVE_MINUTES_S)
        with pytest.raises(CoordinatorLostError, match="the limit is 60 min"):
            turn_for(session, now_s, COORDINATOR_TIMEOUT_S)


def test_a_worker_that_stood_still_itself_does_not_take_its_coordinator_for_silent() -> None:
    """It was stopped for longer than it would wait, and woken up: nobody listened meanwhile."""
    with with_a_coordinator(Patience(60.0), silent=True) as session:
        now_s = turn_for(session, time.monotonic(), 10.0)
        now_s = turn_for(session, now_s + 10_000.0, 40.0)
        with pytest.raises(CoordinatorLostError):
            turn_for(session, now_s, 60.0)
