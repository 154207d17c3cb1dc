"""How often a coordinator is asked, and what is known of one that is silent."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from remuda.client.client import Client
from remuda.page.coordinator_link import FORGOTTEN_S, LEAST_INTERVAL_S, CoordinatorLink, NoCoordinatorError
from remuda.tests.page.folders import status
from remuda.tests.patience import until
from remuda.wire.conversation import UnreachableError
from remuda.wire.messages import Status


class Asked:
    """A coordinator, and the clock by which it is asked: both do what a test says."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.takes_s = 0.0
        self.answers = True
        self.requests_s: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def status(self) -> Status:
        self.requests_s.append(self.now_s)
        self.now_s += self.takes_s
        if not self.answers:
            raise UnreachableError("no answer")
        return status()

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def link(asked: Asked, tmp_path: Path) -> Generator[CoordinatorLink]:
    link = CoordinatorLink(tmp_path, lambda path: cast("Client", asked), asked.clock)
    yield link
    link.close()


def test_a_slow_answer_is_followed_by_a_long_pause(link: CoordinatorLink, asked: Asked) -> None:
    asked.takes_s = 0.5

    def later() -> bool:
        asked.now_s += 1.0
        link.look()
        return len(asked.requests_s) >= 3

    until(later, "three requests")
    first_s, second_s, third_s = asked.requests_s[:3]
    assert second_s - first_s >= 50.0
    assert third_s - second_s >= 50.0


def test_after_a_silence_the_last_status_is_no_longer_known(link: CoordinatorLink, asked: Asked) -> None:
    assert link.recent_status() == link.status() == status()
    asked.answers = False
    asked.now_s += LEAST_INTERVAL_S
    until(lambda: link.look().presence == "silent", "that it is silent")
    with pytest.raises(NoCoordinatorError, match="no answer"):
        link.status()
    assert link.look().silent_since_s is not None
    assert link.recent_status() == status(), "it may have stopped for a moment"
    asked.now_s += FORGOTTEN_S + 0.1
    assert link.recent_status() is None
    asked.answers = True
    until(lambda: link.look().presence == "up", "that it is back")
    assert link.recent_status() == status()
    assert link.look().silent_since_s is None
