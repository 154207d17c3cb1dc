"""Services of trackers block nobody, and the real packages, where installed (make sinks), receive a run offline."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remuda.logbook.trackers import BackgroundSink, Service, SinkError, mlflow_run, wandb_run
from remuda.tests.patience import HANG_S

SETTINGS: dict[str, Any] = {"name": "x", "policy": {"type": "dqn", "hidden": [8, 8]}, "env": {"kwargs": {}}}
ROWS = [{"env_step": 0.0, "evaluator/reward_mean": 9.0}, {"env_step": 10.0, "collector/reward_mean": float("nan")},
        {"env_step": 20.0, "collector/reward_mean": 12.5, "learner/total_loss": 0.25}]  # fmt: skip


class Tracker:
    """Somebody's service: notes what it is told, and may fail or hang at any point."""

    def __init__(self, *, log: Callable[[], None] = lambda: None, finish: Callable[[], None] = lambda: None) -> None:
        self.rows: list[Mapping[str, float]] = []
        self.finished = False
        self._log, self._finish = log, finish

    def log(self, record: Mapping[str, float]) -> None:
        self._log()
        self.rows.append(record)

    def finish(self) -> None:
        self._finish()
        self.finished = True


def fail(error: BaseException) -> Callable[[], Service]:
    def connect() -> Service:
        raise error

    return connect


def ended(sink: BackgroundSink) -> None:
    """Close it and wait for its end."""
    sink.close()
    sink.finish(time.monotonic() + HANG_S)


def send(sink: BackgroundSink, rows: int) -> None:
    for step in range(rows):
        sink.row({"env_step": step})


def until_failed(sink: BackgroundSink) -> None:
    """Send rows until one is refused."""
    deadline_s = time.monotonic() + HANG_S
    while time.monotonic() < deadline_s:
        sink.row({"env_step": 1})
        threading.Event().wait(0.005)


def test_rows_arrive_in_order_and_then_the_end() -> None:
    tracker = Tracker()
    sink = BackgroundSink(Path("x"), lambda: tracker)
    send(sink, 100)
    ended(sink)
    assert [row["env_step"] for row in tracker.rows] == list(range(100))
    assert tracker.finished
    assert not sink.busy


@pytest.mark.parametrize("error", [OSError("no network"), SystemExit(1), ImportError("half installed")])
def test_a_service_that_cannot_be_reached_fails_at_a_later_row(error: BaseException) -> None:
    sink = BackgroundSink(Path("x"), fail(error))
    with pytest.raises(SinkError, match=f"{type(error).__name__}: {error}"):
        until_failed(sink)


def _the_same(tracker: Tracker) -> Tracker:
    return tracker


def test_a_service_that_fails_at_a_row_or_at_its_end_says_so_once() -> None:
    def refuse() -> None:
        raise ValueError("too long a name")

    for tracker in (Tracker(log=refuse), Tracker(finish=refuse)):
        sink = BackgroundSink(Path("x"), partial(_the_same, tracker))
        sink.row({"env_step": 1})
        with pytest.raises(SinkError, match="ValueError: too long a name"):
            ended(sink)
        sink.finish(time.monotonic())


def test_a_service_that_hangs_is_not_waited_for() -> None:
    hang = threading.Event()

    def wait() -> None:
        hang.wait(HANG_S)

    sink = BackgroundSink(Path("x"), lambda: Tracker(log=wait))
    started_s = time.monotonic()
    with pytest.raises(SinkError, match="1000 rows are waiting"):
        send(sink, 2_000)
    sink.close()
    with pytest.raises(SinkError, match="did not end in time"):
        sink.finish(time.monotonic() + 0.01)
    assert sink.busy
    assert time.monotonic() - started_s < HANG_S
    hang.set()
    sink.finish(time.monotonic() + HANG_S)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No account and no server of whoever runs the tests."""
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_API_KEY", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


def played(sink: BackgroundSink) -> None:
    for row in ROWS:
        sink.row(row)
    sink.close()
    sink.finish(time.monotonic() + 90.0)


@pytest.mark.filterwarnings("default")  # warnings of the packages
def test_wandb_writes_a_run_to_be_synced_and_a_resumed_one_has_the_same_id(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="make sinks installs it")
    for _ in range(2):
        played(BackgroundSink(tmp_path, lambda: wandb_run(tmp_path, "x", SETTINGS)))
    id = (tmp_path / "run_id").read_text().strip()
    runs = sorted(tmp_path.glob("wandb/offline-run-*"))
    assert len(runs) in (1, 2), "two that begin in the same second share a folder"
    assert {run.name.rpartition("-")[2] for run in runs} == {id}
    data = b"".join(path.read_bytes() for path in tmp_path.glob(f"wandb/offline-run-*/run-{id}.wandb"))
    assert b"collector/reward_mean" in data
    assert b"12.5" in data
    assert b"hidden" in data


@pytest.mark.filterwarnings("default")  # warnings of the packages
def test_mlflow_keeps_metrics_and_parameters_and_a_resumed_run_goes_on_in_the_same(tmp_path: Path) -> None:
    mlflow: Any = pytest.importorskip("mlflow", reason="make sinks installs it")
    for _ in range(2):
        played(BackgroundSink(tmp_path, lambda: mlflow_run(tmp_path, "x", SETTINGS)))
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("remuda").experiment_id])
    assert [run.info.run_name for run in runs] == ["x"]
    run = runs[0]
    assert run.info.status == "FINISHED"
    assert run.data.params == {"name": "x", "policy.type": "dqn", "policy.hidden": "[8, 8]", "env.kwargs": "{}"}
    history = client.get_metric_history(run.info.run_id, "collector/reward_mean")
    assert {(point.step, point.value) for point in history} == {(20, 12.5)}
    assert json.dumps(run.data.metrics["learner/total_loss"]) == "0.25"


def test_a_service_that_failed_with_its_queue_full_keeps_no_thread() -> None:
    hang = threading.Event()

    def fail() -> Tracker:
        hang.wait(HANG_S)
        raise ValueError("no such project")

    threads = set(threading.enumerate())
    sink = BackgroundSink(Path("x"), fail)
    with pytest.raises(SinkError, match="1000 rows are waiting"):
        send(sink, 2_000)
    hang.set()
    with pytest.raises(SinkError, match="no such project"):
        sink.finish(time.monotonic() + HANG_S)
    sink.close()
    for thread in set(threading.enumerate()) - threads:
        thread.join(HANG_S)
        assert not thread.is_alive()
