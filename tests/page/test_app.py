"""The page over HTTP: nothing without a token, the same headers everywhere, bounded answers, and errors as JSON."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from remuda.page.actions import Actions
from remuda.page.app import make_app
from remuda.page.coordinator_link import CoordinatorLink
from remuda.page.process import Tokens
from remuda.page.requests import READS
from remuda.page.views import Views
from remuda.tests.page.folders import GIF, film, finished_run, run_folder

TOKENS = Tokens.fresh()
VIEWER = {"Authorization": f"Bearer {TOKENS.viewer}"}
ERRORS: list[tuple[str, dict[str, Any], int, str]] = [
    ("/api/run", {}, 400, "invalid"),
    ("/api/run", {"run": "../runs/a_s0"}, 404, "unknown"),
    ("/api/run", {"run": "\0"}, 404, "unknown"),
    ("/api/curves", {"run": "a_s0"}, 400, "invalid"),
    ("/api/curves", {"run": "a_s0", "y": ["progress/x"] * 13}, 400, "invalid"),
    ("/api/curves", {"run": "a_s0", "y": "x/y"}, 400, "invalid"),
    ("/api/run", {"run": "x" * 5_000}, 400, "invalid"),
    ("/api/log", {"run": "a_s0", "file": "*"}, 400, "invalid"),
    ("/api/csv", {"run": "none", "y": "evaluation/return_mean"}, 404, "unknown"),
    ("/api/curves", {"run": ["a_s0"] * 201, "y": "evaluation/return_mean"}, 400, "invalid"),
    ("/api/curves", {"run": "a_s0", "y": "evaluation/return_mean", "points": "1e9"}, 400, "invalid"),
    ("/api/timeline", {"run": "a_s0", "from_s": "nan"}, 400, "invalid"),
    ("/api/log", {"run": "a_s0", "file": "../config.json"}, 404, "unknown"),
    ("/api/log", {"run": "a_s0", "file": "learner/learner_logger.txt", "lines": "0"}, 400, "invalid"),
    ("/api/log", {"run": "a_s0", "file": "*", "search": "x" * 201}, 400, "invalid"),
    ("/api/film", {"run": "a_s0"}, 400, "invalid"),
    ("/api/events", {"run": "none"}, 404, "unknown"),
    ("/api/none", {}, 404, "unknown"),
    ("/api/lineage", {"sweep": ".."}, 404, "unknown"),
    ("/api/herd", {}, 503, "coordinator"),
    ("/api/queue", {}, 503, "coordinator"),
]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed in (0, 1):
        folder = finished_run(tmp_path / "runs", f"a_s{seed}", name="a", seed=seed)
    film(folder, 10)
    evil = run_folder(tmp_path / "runs", "evil", name="b", env={"id": "CartPole-v1", "kwargs": {"password": "hunter2"}})
    evil.learner_log.write_text("<img src=x onerror=alert(1)>\n")
    return tmp_path / "runs"


@pytest.fixture
def client(runs: Path, tmp_path: Path) -> Generator[TestClient]:
    static = tmp_path / "static"
    static.mkdir()
    (static / "index.html").write_text("<!doctype html><title>Remuda</title>")
    (static / "app.js").write_text("export {};")
    (static / "views").mkdir()
    (static / "views" / "herd.js").write_text("export {};")
    views = Views(runs, CoordinatorLink(None))
    actions = Actions(views, None)
    with TestClient(make_app(views, actions, TOKENS, static=static), raise_server_exceptions=False) as client:
        yield client
    views.close()


def get(client: TestClient, path: str, **parameters: Any) -> Any:
    answer = client.get(path, params=parameters, headers=VIEWER)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_files_of_the_browser_side_need_no_token(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert client.get("/static/app.js").headers["content-type"].split(";")[0] in (
        "text/javascript",
        "application/javascript",
    )
    assert client.get("/static/views/herd.js").status_code == 200
    assert client.get("/", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    for path in (
        "/static/../a_s0/config.json",
        "/static/%2e%2e/runs/a_s0/config.json",
        "/static/none.js",
        "/other",
        "/static/",
    ):
        assert client.get(path).status_code == 404


def test_every_answer_has_the_headers_that_keep_others_out(client: TestClient) -> None:
    for path in ("/", "/static/app.js", "/static/none", "/api/runs", "/api/none", "/none"):
        for headers in ({}, VIEWER):
            answer = client.get(path, headers=headers)
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == ("no-store" if path.startswith("/api/") else "no-cache")
            assert "access-control-allow-origin" not in answer.headers
            assert "set-cookie" not in answer.headers


def test_no_data_without_a_token(client: TestClient) -> None:
    shown: list[dict[str, str]] = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKENS.viewer}"}]
    for path in (*READS, "/api/session", "/api/film", "/api/csv", "/api/events", "/api/none"):
        for headers in shown:
            answer = client.get(path, headers=headers, params={"token": TOKENS.viewer})
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "token"), path


def test_runs(client: TestClient, runs: Path) -> None:
    assert get(client, "/api/session")["operator_command"] == f"remuda page {runs} --right operator"
    listed = {run["run"]: run["state"] for run in get(client, "/api/runs")["runs"]}
    assert listed == {"a_s0": "finished", "a_s1": "finished", "evil": "unknown"}
    assert "cartpole_dqn.yaml" in [each["name"] for each in get(client, "/api/examples")["examples"]]
    found = get(client, "/api/run", run="a_s0")
    assert found["run"]["name"] == "a"
    assert found["stop"]["max_env_steps"] > 0


def test_checkpoints_and_films(client: TestClient) -> None:
    assert [each["train_iter"] for each in get(client, "/api/checkpoints", run="a_s1")["checkpoints"]] == [0, 10, 20]
    answer = client.get("/api/film", params={"run": "a_s1", "train_iter": 10}, headers=VIEWER)
    assert (answer.headers["content-type"], answer.content) == ("image/gif", GIF)
    assert client.get("/api/film", params={"run": "a_s1", "train_iter": 20}, headers=VIEWER).status_code == 404


def test_settings_side_by_side_and_no_secret_in_them(client: TestClient) -> None:
    found = get(client, "/api/config", run=["a_s0", "a_s1"])
    differing = {setting["key"] for setting in found["settings"] if setting["differs"]}
    assert differing == {"seed"}
    seed = next(setting for setting in found["settings"] if setting["key"] == "seed")
    assert (seed["values"], seed["source"][0]) == ([0, 1], "command line")
    alone = client.get("/api/config", params={"run": "evil"}, headers=VIEWER).text
    assert "hunter2" not in alone
    assert "kwargs" in alone


def test_a_table_of_runs(client: TestClient) -> None:
    found = get(client, "/api/compare")
    names = [column["name"] for column in found["columns"]]
    assert (names[:3], names[-1]) == (["run", "state", "best_return"], "group")
    assert "env.kwargs.password" in names, "the only one that has it differs"
    assert "hunter2" not in str(found)
    rows = {row[0]: dict(zip(names, row, strict=True)) for row in found["rows"]}
    assert rows["a_s1"]["best_return"] == 100.0
    (variant,) = (each for each in found["variants"] if each["variant"] == "a")
    assert (variant["seeds"], variant["finished"], variant["best_mean"], variant["best_std"]) == (2, 2, 100.0, 0.0)
    assert len(get(client, "/api/compare", run="a_s0")["rows"]) == 1
    assert get(client, "/api/compare", sweep="none")["rows"] == []


def test_errors_are_json_with_a_sentence(client: TestClient) -> None:
    for path, parameters, status, code in ERRORS:
        answer = client.get(path, params=parameters, headers=VIEWER)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), (path, answer.text)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"]["message"]


def test_nothing_is_changed_by_reading(client: TestClient) -> None:
    for path in ("/", "/api/runs", "/api/session", "/api/events", "/api/csv"):
        for method in ("POST", "PUT", "DELETE"):
            assert client.request(method, path, headers=VIEWER).status_code == 405


def test_a_fault_of_the_server_says_no_more_than_that(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(views: Views) -> object:
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr(Views, "runs", broken)
    answer = client.get("/api/runs", headers=VIEWER)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "failed")
    assert "secret" not in answer.text
    assert "a secret of the server" in capsys.readouterr().err
