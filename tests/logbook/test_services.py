"""Weights & Biases and MLflow, the real packages, offline: where they are installed (`make sinks` does that)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from remuda.logbook.trackers import BackgroundSink, mlflow_run, wandb_run

SETTINGS: dict[str, Any] = {"name": "x", "policy": {"type": "dqn", "hidden": [8, 8]}, "env": {"kwargs": {}}}
ROWS = [{"env_step": 0.0, "evaluator/reward_mean": 9.0}, {"env_step": 10.0, "collector/reward_mean": float("nan")},
        {"env_step": 20.0, "collector/reward_mean": 12.5, "learner/total_loss": 0.25}]  # fmt: skip

pytestmark = pytest.mark.filterwarnings("default")  # theirs are not ours to mend


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
