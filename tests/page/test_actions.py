"""Operators carry out actions by the page, and nobody else does."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from remuda.page.actions import LONGEST_BODY_BYTES, NEEDS, Actions, checked
from remuda.page.app import make_app
from remuda.page.commands import RequestedEvaluation, outcome
from remuda.page.coordinator_link import CoordinatorLink
from remuda.page.process import Tokens
from remuda.page.requests import WRITES
from remuda.page.views import Views
from remuda.storage.notes import Notes, read_notes
from remuda.storage.run_folder import RunFolder
from remuda.tests.page.folders import COORDINATOR, finished_run
from remuda.tests.worker.fake_coordinator import FakeCoordinator
from remuda.wire import connection_file
from remuda.wire.messages import AnyMessage, Done, Prioritize, Status, StopExperiment

TOKENS = Tokens.fresh()
VIEWER = {"Authorization": f"Bearer {TOKENS.viewer}"}
OPERATOR = {"Authorization": f"Bearer {TOKENS.operator}"}
GOOD = "name: cartpole\nenv: {id: CartPole-v1}\npolicy: {type: dqn}\n"


@pytest.fixture
def coordinator(tmp_path: Path) -> Generator[FakeCoordinator]:
    with FakeCoordinator() as coordinator:
        connection_file.write(tmp_path / "connection.json", coordinator.connection)
        coordinator.answer = answering(Done())
        yield coordinator


def answering(answer: AnyMessage) -> Callable[[AnyMessage], AnyMessage]:
    def reply(message: AnyMessage) -> AnyMessage:
        return answer if isinstance(message, StopExperiment | Prioritize) else Status(COORDINATOR, [], [])

    return reply


@pytest.fixture
def client(tmp_path: Path, coordinator: FakeCoordinator) -> Generator[TestClient]:
    finished_run(tmp_path / "runs", "a")
    file = tmp_path / "connection.json"
    views = Views(tmp_path / "runs", CoordinatorLink(file))
    actions = Actions(views, file)
    with TestClient(make_app(views, actions, TOKENS)) as client:
        yield client
    views.close()


def post(client: TestClient, path: str, **body: Any) -> tuple[int, Any]:
    answer = client.post(path, json=body, headers=OPERATOR)
    return answer.status_code, answer.json()


def test_who_only_reads_does_nothing(client: TestClient, coordinator: FakeCoordinator) -> None:
    assert client.get("/api/session", headers=VIEWER).json()["actions"] == []
    assert client.get("/api/session", headers=OPERATOR).json()["actions"] == [*NEEDS]
    for path in WRITES:
        answer = client.post(path, json={}, headers=VIEWER)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "right"), path
        assert client.post(path, json={}).status_code == 401
    assert not coordinator.heard_of(StopExperiment)


def test_bodies_are_checked_and_bounded(client: TestClient) -> None:
    typed = {**OPERATOR, "Content-Type": "application/json"}
    large = b'"' + b"x" * LONGEST_BODY_BYTES + b'"'
    for path in WRITES:
        for content in (b"", b"{", b"[]", b'{"nothing": 1}', b"\xff", b"[" * 10_000):
            answer = client.post(path, content=content, headers=typed)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid"), path
        assert client.post(path, content=b"{}", headers=OPERATOR).status_code == 400, "another type"
        answer = client.post(path, content=large, headers=typed)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "large"), path


def test_stop_and_priority_go_to_the_coordinator(client: TestClient, coordinator: FakeCoordinator) -> None:
    assert post(client, "/api/stop", experiment="x", now=True) == (200, {})
    assert post(client, "/api/priority", experiment="x", priority=-3) == (200, {})
    assert coordinator.heard_of(StopExperiment) == [StopExperiment("x", True)]
    assert coordinator.heard_of(Prioritize) == [Prioritize("x", -3)]


def test_a_config_is_checked_as_it_is_typed(client: TestClient) -> None:
    assert post(client, "/api/config/check", text=GOOD) == (200, {"valid": True, "name": "cartpole", "problems": []})
    status, answer = post(client, "/api/config/check", text=GOOD + "learner: {batch_sise: 3}\n")
    assert (status, answer["valid"]) == (200, False)
    (found,) = answer["problems"]
    assert (found["line"], found["key"]) == (4, "learner.batch_sise")
    assert "batch_size" in found["message"], "the nearest setting"


def test_checking_runs_no_code_that_a_config_names(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('was imported')")
    text = (
        f"name: x\nsource_dir: {tmp_path}\nenv: {{make: 'evil:make'}}\npolicy: {{type: custom, class: 'evil:Policy'}}\n"
    )
    checked(text, [], tmp_path)


def test_an_evaluation_is_what_the_command_says() -> None:
    begun = RequestedEvaluation(id="e1", run="a", train_iter="best", episodes=2, deterministic=True, began_s=0.0)
    each = '[{"return": 1}, {"return": 3.0}]'
    text = f'{{"reward_mean": 2.0, "reward_std": NaN, "each": {each}}}'
    done = outcome(begun, 0, text, "")
    assert (done.state, done.return_mean, done.return_std, done.returns) == ("done", 2.0, None, [1.0, 3.0])
    failed = outcome(begun, 2, "", "a\nb\nc\nd\n")
    assert (failed.state, failed.message) == ("failed", "b\nc\nd")
    assert outcome(begun, 0, "no json", "").state == "failed"


def test_without_a_coordinator_evaluations_and_notes_are_left(tmp_path: Path) -> None:
    views = Views(tmp_path, CoordinatorLink(None))
    actions = Actions(views, None)
    assert actions.names("operator") == ["evaluate", "replay", "note"]
    with TestClient(make_app(views, actions, TOKENS)) as client:
        for path, body in (("/api/stop", {"experiment": "x"}), ("/api/submit", {"text": GOOD})):
            assert post(client, path, **body)[1]["error"]["code"] == "coordinator"
        assert post(client, "/api/evaluate", run="none")[0] == 404
    views.close()


def test_notes_are_written_into_the_run_folder_and_listed(client: TestClient, tmp_path: Path) -> None:
    def listed() -> Any:
        return client.get("/api/run", params={"run": "a"}, headers=VIEWER).json()["run"]

    before = listed()
    assert (before["note"], before["tags"]) == ("", [])
    notes = Notes("<b>a\nb", ["good", "lr"])
    told = {"note": notes.note, "tags": notes.tags}
    assert post(client, "/api/note", run="a", note="<b>a\nb ", tags=["good,lr", "good"]) == (200, told)
    after = listed()
    assert {"note": after["note"], "tags": after["tags"]} == told
    assert after["changed_s"] == before["changed_s"], "the run itself did not change"
    assert read_notes(RunFolder(tmp_path / "runs" / "a")) == notes


@pytest.mark.processes
def test_a_submission_that_the_command_refuses_says_why(client: TestClient) -> None:
    status, answer = post(client, "/api/submit", text=GOOD.replace("CartPole-v1", "Nothing-v1"))
    assert (status, answer["error"]["code"]) == (422, "config")
    assert "Nothing" in answer["error"]["problems"][0]["message"]
