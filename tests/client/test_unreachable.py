"""A question that nobody answered is forgotten, and the next one is asked on its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.client import Client
from remuda.client import client as client_module
from remuda.client.beginning import ResolvedRun
from remuda.client.running import launch
from remuda.config.load import load_settings
from remuda.deploy.launcher import LaunchError
from remuda.tests.client.statuses import status
from remuda.tests.patience import HANG_S
from remuda.tests.worker.fake_coordinator import UUID, FakeCoordinator
from remuda.wire import connection_file
from remuda.wire.conversation import UnreachableError
from remuda.wire.messages import (
    AnyMessage,
    CoordinatorStatus,
    Done,
    LogRequest,
    LogText,
    Rejected,
    Status,
    StatusRequest,
    StopExperiment,
)
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
        assert coordinator.heard_from_newest == [StopExperiment("y")]


def test_a_busy_coordinator_is_asked_again_until_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "connection.json"
    with FakeCoordinator() as coordinator:

        def busy(message: AnyMessage) -> AnyMessage:
            free = len(coordinator.heard) == 3
            return LogText([], over=True) if free else Rejected("busy", "64 requests wait already")

        coordinator.answer = busy
        connection_file.write(path, coordinator.connection)
        with Client(path, answer_deadline_s=HANG_S) as client:
            monkeypatch.setattr(client_module, "POLL_S", 0.001)
            assert client.read_log(LogRequest("x")).over
            monkeypatch.setattr(client_module, "POLL_S", HANG_S)
            with pytest.raises(UnreachableError, match="is busy: 64 requests wait already"):
                client.read_log(LogRequest("x"))


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


def test_who_follows_a_run_looks_for_the_cause_all_the_while_that_nobody_answers(tmp_path: Path) -> None:
    """`launch` starts a dead coordinator again by this, and must not wait for the deadline of its question first."""
    path, looks = tmp_path / "connection.json", iter(range(3))

    def check() -> None:
        if next(looks, None) is None:
            raise ChildProcessError("the coordinator is dead")

    with FakeCoordinator() as coordinator:
        coordinator.answer = answer
        coordinator.silent = True
        connection_file.write(path, coordinator.connection)
        with Client(path, answer_deadline_s=HANG_S) as client:
            with pytest.raises(ChildProcessError, match="is dead"):
                client.follow("x", lambda status: None, check=check)
            coordinator.silent = False
            client.stop("y")
        assert coordinator.heard_from_newest == [StopExperiment("y")], "the other is not asked any more"


DYING = """
from pathlib import Path
from remuda.deploy.launcher import LaunchError
from remuda.deploy.local import LocalLauncher

class Dying(LocalLauncher):
    connection_file = Path(__file__).with_name("connection.json")

    def start(self, workers, *, given_up):
        pass

    def check(self):
        raise LaunchError("the coordinator is dead")
"""


def test_a_launch_whose_coordinator_dies_before_the_submission_ends_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not after the deadline of a submission, with a guess about the network."""
    (tmp_path / "dying.py").write_text(DYING)
    monkeypatch.setattr(sys, "path", [*sys.path])
    config = {"name": "horse", "env": {"id": "CartPole-v1"}, "policy": {"type": "dqn"}, "launch": {"on": "dying:Dying"}}
    run = ResolvedRun(load_settings(config, folder=tmp_path), tmp_path / "runs" / "horse")
    with FakeCoordinator() as coordinator:
        coordinator.silent = True
        connection_file.write(tmp_path / "connection.json", coordinator.connection)
        with pytest.raises(LaunchError, match="the coordinator is dead"):
            launch(run)


def test_a_run_that_is_to_stop_is_asked_to_until_that_is_answered(tmp_path: Path) -> None:
    path, checks = tmp_path / "connection.json", iter(range(10**6))
    with FakeCoordinator() as coordinator:

        def stopped(message: AnyMessage) -> AnyMessage:
            if isinstance(message, StopExperiment):
                return Done()
            over = len(coordinator.heard_of(StatusRequest)) > 1
            return Status(ABOUT, [], [status(state="stopped" if over else "stopping")])

        def check() -> None:
            coordinator.silent = next(checks) < 4  # for longer than one question

        coordinator.answer = stopped
        coordinator.silent = True
        connection_file.write(path, coordinator.connection)
        with Client(path, answer_deadline_s=0.3) as client:
            patience = Patience(HANG_S)
            ended = client.follow("x", lambda status: None, check=check, stop=lambda: True, patience=patience)
    assert ended.state == "stopped"
    heard = [type(message) for message in coordinator.heard]
    assert heard[0] is StopExperiment
    assert StopExperiment not in heard[heard.index(StatusRequest) :], "only until it was answered"


def test_who_follows_a_run_with_patience_waits_for_a_connection_file_that_cannot_be_read(tmp_path: Path) -> None:
    """As on a network disk, or while a coordinator is moved to another host."""
    path, said = tmp_path / "connection.json", list[str]()
    with FakeCoordinator() as first:
        connection_file.write(path, first.connection)
    client = Client(path, answer_deadline_s=0.1)
    path.unlink()
    with FakeCoordinator() as second:
        second.answer = lambda message: Status(ABOUT, [], [status(state="finished")])

        def check() -> None:
            if said:
                connection_file.write(path, second.connection)

        ended = client.follow("x", lambda status: None, check=check, patience=Patience(60.0, said.append))
    client.close()
    assert ended.state == "finished"
    assert said == [f"{path} does not exist: no coordinator runs there (start one with `remuda coordinator`)"]


def test_a_connection_file_that_is_gone_counts_as_no_answer_once_the_patience_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong path is a mistake of the user; a coordinator that has ended is none, and the exit codes differ."""
    monkeypatch.setattr(client_module, "RETURN_DEADLINE_S", -1.0)
    path = tmp_path / "connection.json"
    with FakeCoordinator() as ended:
        connection_file.write(path, ended.connection)
    with Client(path, answer_deadline_s=0.1) as client:
        path.unlink()
        for reason in ("did not answer", "does not exist"):
            with pytest.raises(UnreachableError, match=reason):
                client.follow("x", lambda status: None)
        with pytest.raises(UnreachableError, match="does not exist"):
            list(client.logs("x"))


OTHER = UUID.replace("0", "1")


def test_a_stale_connection_file_that_is_rewritten_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "connection.json"
    with FakeCoordinator() as dead:
        connection_file.write(path, dead.connection)
    with FakeCoordinator() as coordinator, Client(path) as client:
        coordinator.answer = lambda message: Done()
        connection_file.write(path, replace(coordinator.connection, coordinator=OTHER))
        client.stop("x")
        client.stop("y")
        assert coordinator.heard == [StopExperiment("x"), StopExperiment("y")]


@pytest.mark.parametrize("file", ["the same", "none", "half a word"])
def test_without_another_it_is_unreachable_at_the_deadline(tmp_path: Path, file: str) -> None:
    path = tmp_path / "connection.json"
    with FakeCoordinator() as dead:
        connection_file.write(path, dead.connection)
    with Client(path, answer_deadline_s=1.5) as client:
        if file == "none":
            path.unlink()
        if file == "half a word":
            path.write_text('{"coord')
        with pytest.raises(UnreachableError, match=r"did not answer within 1\.\d+ s"):
            client.stop("x")
