"""A logbook opens the files of its role, shows each report in all of them, and survives any of them."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import get_args

import pytest

from remuda.logbook.book import RETRY_S, Outages
from remuda.logbook.episode_reports import (
    CollectReport,
    CollectTotals,
    CollectWindow,
    EpisodeReport,
    EvaluationReport,
    WorkerReport,
)
from remuda.logbook.progress import ProgressColumns, ProgressRow
from remuda.logbook.reports import BufferThroughputReport, CallbackReport, FilmReport, HistogramReport, LearnReport
from remuda.logbook.role_logbooks import commander_logbook, learner_logbook, serial_logbook, worker_logbook
from remuda.logbook.row_sinks import SinkContext, attach_sinks
from remuda.logbook.trackers import BackgroundSink
from remuda.storage.existing_folder import Mode, prepare
from remuda.storage.run_folder import RunFolder
from remuda.tests.logbook.event_reader import curves, films, histograms
from remuda.wire.messages import Film, Histogram

UUID = "6f1c9c3e-0d0a-4c5b-8a39-2f6f6f5c1e77"
LEARN = LearnReport(train_iter=100, env_step=800, variables={"total_loss": 0.5})
EPISODE = EpisodeReport(train_iter=100, env_step=800, env=0, final_reward=9.0, episode=1)
EVALUATION = EvaluationReport(
    train_iter=100, env_step=800, ckpt_name="iteration_100.pth.tar", returns=[9.0], lengths=[9], duration_s=1.0
)
COLLECT = CollectReport(
    train_iter=100,
    env_step=800,
    window=CollectWindow(env_steps=8, train_samples=8, duration_s=1.0, episode_returns=[], episode_lengths=[]),
    totals=CollectTotals(env_steps=800, train_samples=800, episodes=0, duration_s=9.0),
)
THROUGHPUT = BufferThroughputReport(
    train_iter=100, env_step=800, wall_s=60.0, past_s=60.0, pushed_in=1, sampled_out=2, removed=3, current_have=4
)
COLLECTOR_WORKER = WorkerReport(
    train_iter=100,
    env_step=800,
    role="collector",
    worker=UUID,
    episode_count=1,
    step_count=8,
    duration_s=1.0,
    reward_mean=9.0,
    reward_std=0.0,
)
WEIGHTS = HistogramReport(train_iter=100, env_step=800, of="weights", histograms={"layer": Histogram(0.0, [1.0], [3])})
ACTIONS = replace(WEIGHTS, of="actions", histograms={"action": Histogram(0.0, [1.0], [4])})
FILM = FilmReport(train_iter=100, env_step=800, film=Film(b"GIF89a", 4, 6))
PROGRESS = ProgressRow(epoch=1, env_step=800, losses={"LossQ": 0.5}, wall_s=9.0)


@dataclass
class Disk:
    """A file whose disk may refuse."""

    path: Path = Path("f")
    error: Exception | None = None
    attempts: list[float] = field(default_factory=list[float])
    now_s: float = 0.0

    def write(self) -> None:
        self.attempts.append(self.now_s)
        if self.error is not None:
            raise self.error


def test_it_is_tried_again_after_pauses_and_said_at_its_begin_and_end() -> None:
    disk = Disk(error=OSError(28, "No space left on device"))
    outages = Outages(lambda: disk.now_s)
    news: list[tuple[float, str]] = []
    for second in range(60):
        disk.now_s = float(second)
        if second == 45:
            disk.error = None
        found = outages.attempt(disk, disk.write)
        if found is not None:
            news.append((disk.now_s, found.text))
    assert disk.attempts[:7] == [0.0, 1.0, 3.0, 8.0, 18.0, 28.0, 38.0]
    assert [after - before for before, after in zip(disk.attempts, disk.attempts[1:4], strict=False)] == list(
        RETRY_S[:3]
    )
    assert disk.attempts[7:] == [float(second) for second in range(48, 60)]
    assert news == [
        (0.0, "f cannot be written and will be tried again; the run continues: [Errno 28] No space left on device"),
        (48.0, "f is written again; 48 records are missing: [Errno 28] No space left on device"),
    ]
    assert outages.end(disk) is None


def test_what_no_waiting_mends_ends_it_for_good() -> None:
    disk = Disk(error=ValueError("no such column"))
    outages = Outages(lambda: disk.now_s)
    found = outages.attempt(disk, disk.write)
    assert found is not None
    assert found.text == "f is given up; the run continues: no such column"
    disk.error, disk.now_s = None, 1e9
    assert outages.attempt(disk, disk.write, at_once=True) is None
    assert disk.attempts == [0.0]
    assert outages.end(disk) is None


def a_run(root: Path, mode: Mode) -> RunFolder:
    return prepare(root / "run", "error", mode=mode, now=datetime(2026, 8, 21))


def files(run: RunFolder) -> set[str]:
    found = (path.relative_to(run.root).as_posix() for path in run.root.rglob("*") if path.is_file())
    return {re.sub(r"tfevents\..*", "tfevents", name) for name in found}


def test_a_serial_run_has_exactly_the_promised_logs(tmp_path: Path) -> None:
    run = a_run(tmp_path, "serial")
    with serial_logbook(run, ProgressColumns(["LossQ"])):
        assert files(run) == {
            "progress.txt",
            "log/buffer/buffer_logger.txt",
            "log/collector/collector_logger.txt",
            "log/evaluator/evaluator_logger.txt",
            "log/learner/learner_logger.txt",
            "log/serial/events.out.tfevents",
        }


def test_a_parallel_run_has_exactly_the_promised_logs(tmp_path: Path) -> None:
    run = a_run(tmp_path, "parallel")
    with (
        commander_logbook(run, ProgressColumns(["LossQ"])),
        learner_logbook(run),
        worker_logbook(run, "collector", UUID, 1),
        worker_logbook(run, "evaluator", UUID, 2),
    ):
        assert files(run) == {
            "progress.txt",
            "log/coordinator_logger.txt",
            "log/buffer/buffer_logger.txt",
            "log/buffer/buffer_tb_logger/events.out.tfevents",
            f"log/collector/{UUID}_000001_logger.txt",
            f"log/evaluator/{UUID}_000002_logger.txt",
            "log/learner/learner_logger.txt",
            "log/learner/learner_tb_logger/events.out.tfevents",
            "log/commander/commander_logger.txt",
            "log/commander/commander_collector_logger.txt",
            "log/commander/commander_evaluator_logger.txt",
            "log/commander/commander_tb_logger/events.out.tfevents",
        }


def test_one_report_is_in_its_log_and_its_curves_and_nowhere_else(tmp_path: Path) -> None:
    run = a_run(tmp_path, "serial")
    with serial_logbook(run, ProgressColumns(["LossQ"])) as book:
        for report in (LEARN, EPISODE, EVALUATION, COLLECT, THROUGHPUT):
            book.emit(report)
        book.progress(PROGRESS)
    for path, starts in {
        run.learner_log: ["=== Training Iteration 100 Result ==="],
        run.serial_evaluator_log: ["[EVALUATOR] env 0 finished episode", "=== Evaluation at Iteration 100 Result ==="],
        run.serial_collector_log: ["collect end:"],
        run.buffer_log: ["In the past 60 seconds, buffer statistics is as follows:"],
    }.items():
        records = re.findall(r"^\[\d.*\]\[test_book\.py:\d+\]\[INFO\] (.*)$", path.read_text(), re.MULTILINE)
        assert [text.startswith(start) for text, start in zip(records, starts, strict=True)] == [True] * len(starts)
    found = curves(run.serial_tb)
    assert found["learner_iter/total_loss_avg"] == [(100, 0.5)]
    assert found["learner_step/total_loss_avg"] == [(800, 0.5)]
    assert found["evaluator_step/reward_mean"] == [(800, 9.0)]
    assert found["collector_iter/envstep_count"] == [(100, 8.0)]
    assert found["buffer_sec/removed"] == [(60, 3.0)]
    assert "collector_iter/reward_mean" not in found, "nan is not a point"
    assert {tag.partition("/")[0] for tag in found} == {
        *(f"{role}_{axis}" for role in ("learner", "evaluator", "collector") for axis in ("iter", "step")),
        "buffer_sec",
    }
    assert run.progress.read_text().splitlines()[1].startswith("1\t")


def test_the_commander_shows_workers_and_evaluations(tmp_path: Path) -> None:
    run = a_run(tmp_path, "parallel")
    with commander_logbook(run, ProgressColumns(["LossQ"])) as book:
        book.emit(COLLECTOR_WORKER)
        book.emit(EVALUATION)
        book.emit(THROUGHPUT)
        book.say("commander", "the run ended: stop_value 195 reached with 196.2")
        book.say("coordinator", "worker lost", level="warning")
    assert f"[COLLECTOR] worker {UUID}:\n" in run.commander_collector_log.read_text()
    assert "=== Evaluation at Iteration 100 Result ===" in run.commander_log.read_text()
    assert "the run ended: stop_value 195 reached with 196.2\n" in run.commander_log.read_text()
    assert re.search(r"\[test_book\.py:\d+\]\[WARNING\] worker lost\n$", run.coordinator_log.read_text())
    assert run.commander_evaluator_log.read_text() == ""
    assert curves(run.commander_tb)["collector_step/avg_time_per_step"] == [(800, 0.125)]
    assert curves(run.buffer_tb)["buffer_sec/current_have"] == [(60, 4.0)]


def test_histograms_and_films_stand_in_the_event_file_of_whoever_makes_them_and_in_no_log(tmp_path: Path) -> None:
    serial, parallel = (a_run(tmp_path / mode, mode) for mode in get_args(Mode))
    with serial_logbook(serial, ProgressColumns(["LossQ"])) as book:
        for report in (WEIGHTS, ACTIONS, FILM):
            book.emit(report)
    with learner_logbook(parallel) as learner, commander_logbook(parallel, ProgressColumns(["LossQ"])) as commander:
        learner.emit(WEIGHTS)
        commander.emit(ACTIONS)
        commander.emit(FILM)
    assert set(histograms(serial.serial_tb)) == {"weights_iter/layer", "actions_iter/action"}
    assert set(histograms(parallel.learner_tb)) == {"weights_iter/layer"}
    assert set(histograms(parallel.commander_tb)) == {"actions_iter/action"}
    for folder in (serial.serial_tb, parallel.commander_tb):
        assert films(folder) == {"film_iter/first_episode": [(100, FILM.film)]}
    logs = [path for run in (serial, parallel) for path in run.root.rglob("*_logger.txt")]
    assert logs
    assert [path.name for path in logs if path.read_text()] == []


class Tracker:
    """Keeps what an experiment tracker gets."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, float]] = []

    def log(self, record: Mapping[str, float]) -> None:
        self.rows.append(record)

    def finish(self) -> None:
        """Nothing is left to do."""


def test_numbers_of_callbacks_reach_trackers_and_no_sink_that_expects_whole_rows(tmp_path: Path) -> None:
    tracker, plain = Tracker(), Tracker()
    with serial_logbook(a_run(tmp_path, "serial"), ProgressColumns(["LossQ"])) as files:
        files.sinks.append(BackgroundSink(tmp_path / "tracker", lambda: tracker, takes_callbacks=True))
        files.sinks.append(BackgroundSink(tmp_path / "plain", lambda: plain))
        at = {"train_iter": 100, "env_step": 800}
        files.emit(CallbackReport(**at, callback="Mine", wall_s=9.0, numbers={"spread": 0.5}))
    assert tracker.rows == [{"env_step": 800.0, "callback/spread": 0.5}]
    assert plain.rows == []


class FullDisk:
    """Takes half of what is written, and then nothing more, until there is room again."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.full = False
        self._write = os.write
        patch.setattr(os, "write", self)

    def __call__(self, descriptor: int, data: bytes) -> int:
        if not self.full:
            return self._write(descriptor, data)
        if len(data) < 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._write(descriptor, data[: len(data) // 2])


def test_a_disk_that_was_full_costs_what_came_meanwhile_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, disk, now_s = a_run(tmp_path, "serial"), FullDisk(monkeypatch), 100.0
    with serial_logbook(run, ProgressColumns(["LossQ"])) as files:
        attach_sinks(files, ["csv", "jsonl"], SinkContext(run, "x", {}))
        book = replace(files, clock=lambda: now_s)

        def report(*updates: int) -> None:
            for i in updates:
                book.emit(replace(LEARN, train_iter=i, env_step=8 * i))
                book.progress(replace(PROGRESS, epoch=i, env_step=8 * i))
                book.say("buffer", f"update {i}")

        report(1, 2)
        disk.full = True
        report(3)
        now_s += 0.5
        report(4)
        now_s += 0.6
        report(5)  # tried without success
        disk.full = False
        now_s += 1.0
        report(6)  # too early for the second attempt
        now_s += 10.0
        report(7, 8)
    assert curves(run.serial_tb)["learner_step/total_loss_avg"] == [(8 * i, 0.5) for i in (1, 2, 7, 8)]
    assert [line.split("\t")[0] for line in run.progress.read_text().splitlines()] == ["Epoch", "1", "2", "7", "8"]
    assert [json.loads(line)["env_step"] for line in run.progress_jsonl.read_text().splitlines()] == [8, 16, 56, 64]
    assert len(run.progress_csv.read_text().splitlines()) == 5
    log = run.buffer_log.read_text()
    assert re.findall(r"INFO\] update (\d)\n", log) == ["1", "2", "7", "8"]
    assert f"[WARNING] {run.buffer_log} is written again; 4 records are missing: " in log
    said = capsys.readouterr().err
    assert said.count("cannot be written and will be tried again") == said.count("is written again; ") == 7
    assert len(said.splitlines()) == 14
    assert "progress.txt is written again; 4 records" in run.serial_evaluator_log.read_text()
