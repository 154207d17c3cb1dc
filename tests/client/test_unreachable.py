"""A question that nobody answered is forgotten, and the next one is asked on its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.client import Client
from remuda.client import client as client_module
from remuda.tests.client.statuses import status
from remuda.tests.patience import HANG_S
from remuda.tests.worker.fake_coordinator import UUID, FakeCoordinator
from remuda.wire import connection_file
from remuda.wire.connection_file import ConnectionFileError
from remuda.wire.conversation import UnreachableError
from remuda.wire.messages import AnyMessage, CoordinatorStatus, Done, LogRequest, LogText, Status, StopExperiment
from remuda.wire.patience import Patience

ABOUT = CoordinatorStatus(UUID, "here", 1, 1.0, 1)


ANSWER_S = 0.5
"""For questions that nobody answers."""


def answer(message: AnyMessage) -> AnyMessage:
    return LogText([], over=True) if isinstance(message, LogRequest) else Done()


def test_after_an_answer_that_did_not_come_the_next_question_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "connection.json"
    with FakeCoordinator() as coordinator:
        coordinator.answer = answer
        connection_file.write(path, coordinator.connection)
        with Client(path, answer_deadline_s=ANSWER_S) as client:
            coordinator.silent = True
            with pytest.raises(UnreachableError):
                client.stop("x")
            coordinator.silent = False
            client._answer_deadline_s = HANG_S
            client.stop("y")
        assert coordinator.heard == [StopExperiment("y")]


def test_without_a_coordinator_every_question_says_that_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "connection.json"
    with FakeCoordinator() as coordinator:
        connection_file.write(path, coordinator.connection)
    with Client(path, answer_deadline_s=0.1) as client:
        for _ in range(2):
            with pytest.raises(UnreachableError):
                client.stop("x")
        path.unlink()
        with pytest.raises(ConnectionFileError, match="no coordinator runs there"):
            client.stop("x")


def test_who_follows_a_log_waits_for_a_coordinator_that_ended_in_order_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes its connection file along."""
    path = tmp_path / "connection.json"
    monkeypatch.setattr(client_module, "POLL_S", 0.001)
    with FakeCoordinator() as first:
        connection_file.write(path, first.connection)
    client = Client(path, answer_deadline_s=ANSWER_S)
    path.unlink()
    waits = iter(range(10**6))

    def come_back(seconds: float) -> None:
        if next(waits) == 3:
            connection_file.write(path, second.connection)
            client._answer_deadline_s = HANG_S

    with FakeCoordinator() as second:
        second.answer = answer
        monkeypatch.setattr("remuda.client.client.time.sleep", come_back)
        assert list(client.logs("x", follow=True)) == []
        assert [type(message) for message in second.heard] == [LogRequest]
    client.close()


def test_who_follows_a_run_with_patience_waits_for_a_coordinator_that_is_silent(tmp_path: Path) -> None:
    """As `launch` does: what it asks and nobody answers for longer than a question's deadline ends nothing."""
    path, said = tmp_path / "connection.json", list[str]()
    with FakeCoordinator() as coordinator:
        coordinator.answer = lambda message: Status(ABOUT, [], [status(state="finished")])
        coordinator.silent = True
        connection_file.write(path, coordinator.connection)
        checks = iter(range(10**6))

        def check() -> None:
            coordinator.silent = next(checks) < 3

        with Client(path, answer_deadline_s=ANSWER_S) as client:
            with pytest.raises(UnreachableError):
                client.follow("x", lambda status: None)
            ended = client.follow("x", lambda status: None, check=check, patience=Patience(HANG_S, said.append))
    assert ended.state == "finished"
