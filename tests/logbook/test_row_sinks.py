"""log.sinks: opened beside progress.txt, and none of them can disturb the run or its other files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.config.workers import LogConfig, SinkName
from remuda.logbook.book import Logbook
from remuda.logbook.progress import ProgressColumns, ProgressRow
from remuda.logbook.role_logbooks import serial_logbook
from remuda.logbook.row_sinks import attach_configured
from remuda.storage.existing_folder import prepare
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Counters


def row(env_step: int) -> ProgressRow:
    return ProgressRow(epoch=0, env_step=env_step, returns=[1.0], lengths=[2], losses={"LossQ": 0.5}, wall_s=1.0)


def a_run(root: Path) -> RunFolder:
    return prepare(root / "run", "error", mode="serial", now=datetime(2026, 8, 21))


def opened(run: RunFolder, *names: SinkName, resumed: Counters | None = None) -> Logbook:
    config = ExperimentConfig(name="x", env=EnvConfig(id="CartPole-v1"), log=LogConfig(sinks=names))
    book = serial_logbook(run, ProgressColumns(["LossQ"]), resumed=resumed)
    attach_configured(book, config, run, resumed)
    return book


class Faulty:
    """A sink of a user that fails at its third row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.closed = 0

    def row(self, record: Mapping[str, float]) -> None:
        self.rows += 1
        if self.rows == 3:
            raise RuntimeError("quota exceeded")

    def close(self) -> None:
        self.closed += 1


def test_a_resumed_run_goes_on_in_all_of_them(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    with opened(run, "csv", "jsonl") as book:
        for step in (1, 2, 3):
            book.progress(row(step))
    with opened(run, "csv", "jsonl", resumed=Counters(env_step=2)) as book:
        book.progress(row(3))
    assert [line.split(",")[0] for line in run.progress_csv.read_text().splitlines()] == ["env_step", "1", "2", "3"]
    assert [json.loads(line)["env_step"] for line in run.progress_jsonl.read_text().splitlines()] == [1, 2, 3]


def test_a_failing_sink_is_warned_of_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, faulty = a_run(tmp_path), Faulty(tmp_path / "theirs")
    with opened(run, "csv") as book:
        book.sinks.insert(0, faulty)
        for step in range(1, 7):
            book.progress(row(step))
    assert faulty.rows == 3
    assert faulty.closed == 1
    assert len(run.progress.read_text().splitlines()) == len(run.progress_csv.read_text().splitlines()) == 7
    warnings = [line for line in run.serial_evaluator_log.read_text().splitlines() if "WARNING" in line]
    assert len(warnings) == 1
    assert warnings[0].endswith(f"{faulty.path} is given up; the run continues: quota exceeded")
    assert capsys.readouterr().err.count("quota exceeded") == 1


def test_a_sink_that_cannot_be_opened_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path)
    run.progress_csv.mkdir()
    with opened(run, "csv", "jsonl") as book:
        book.progress(row(1))
    assert len(run.progress_jsonl.read_text().splitlines()) == 1
    log = run.serial_evaluator_log.read_text()
    assert log.count("sink csv is left out; the run continues: ") == 1
    assert "sink csv is left out" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_named(name: SinkName, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if find_spec(name) is not None:
        pytest.skip(f"{name} is installed: test_services.py runs it")
    run = a_run(tmp_path)
    with opened(run, name) as book:
        book.progress(row(1))
    expected = f"sink {name} is left out; the run continues: {name} is not installed: pip install 'remuda[{name}]'"
    assert expected in run.serial_evaluator_log.read_text()
    assert capsys.readouterr().err == f"remuda: {expected}\n"
    assert len(run.progress.read_text().splitlines()) == 2


def test_the_same_sink_twice_is_a_mistake_in_the_config() -> None:
    with pytest.raises(ValueError, match="should name each sink once"):
        LogConfig(sinks=("csv", "csv"))
