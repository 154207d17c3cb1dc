"""Reports of learning and of vitals have the promised names in the promised tables."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from remuda.logbook.progress import ProgressColumns
from remuda.logbook.reports import BufferSampleReport, BufferThroughputReport, LearnReport, VitalsReport
from remuda.logbook.role_logbooks import serial_logbook
from remuda.logbook.series import Usage
from remuda.storage.run_folder import RunFolder
from remuda.tests.logbook.event_reader import curves

LEARNER = Usage("learner", 1, 0.981, 221.4, 0.75, 0.0, 0.1875, 0.0625, 0.0, 0.0)
COLLECTOR = Usage("collector", 2, 1.2, 300.0, 0.25, 0.5, 0.0, 0.0, 0.25, 0.0)
REPORT = VitalsReport(train_iter=40, env_step=900, wall_s=61.5, past_s=60.04, roles=[LEARNER, COLLECTOR])


def test_the_learners_table() -> None:
    report = LearnReport(train_iter=300, env_step=1, variables={"cur_lr": 0.001, "total_loss": 0.098996})
    assert report.text().startswith("=== Training Iteration 300 Result ===\n+-------+------------+")
    assert report.fields() == {"cur_lr_avg": 0.001, "total_loss_avg": 0.098996}


def test_other_statistics_of_a_metric_stand_behind_the_averages() -> None:
    spread = {"total_loss_std": 0.5, "total_loss_max": 2.0, "total_loss_min": 1.0, "total_loss_median": 1.25}
    variables = {"total_loss": 1.5, "reward_max": 7.0, **spread}
    report = LearnReport(train_iter=300, env_step=1, variables=variables)
    assert report.fields() == {"total_loss_avg": 1.5, "reward_max_avg": 7.0, **spread}, "the average of reward_max"


def test_the_buffers_tables() -> None:
    sample = BufferSampleReport(
        train_iter=1,
        env_step=2,
        sample_count=200,
        use_avg=1.5,
        use_max=4,
        priority_avg=0.5,
        priority_max=1.0,
        priority_min=0.125,
        staleness_avg=7.5,
        staleness_max=20,
    )
    assert sample.text() == (
        "=== Sample data 200 Times ===\n"
        "+-------+----------+---------+--------------+--------------+\n"
        "| Name  | use_avg  | use_max | priority_avg | priority_max |\n"
        "+-------+----------+---------+--------------+--------------+\n"
        "| Value | 1.500000 | 4       | 0.500000     | 1.000000     |\n"
        "+-------+----------+---------+--------------+--------------+\n"
        "+-------+--------------+---------------+---------------+\n"
        "| Name  | priority_min | staleness_avg | staleness_max |\n"
        "+-------+--------------+---------------+---------------+\n"
        "| Value | 0.125000     | 7.500000      | 20            |\n"
        "+-------+--------------+---------------+---------------+"
    )


@pytest.mark.parametrize(("past_s", "shown"), [(60.0, "60"), (60.34, "60.3"), (3600.04, "3600")])
def test_the_buffers_throughput(past_s: float, shown: str) -> None:
    report = BufferThroughputReport(
        train_iter=1,
        env_step=2,
        wall_s=61.0,
        past_s=past_s,
        pushed_in=640,
        sampled_out=5_120,
        removed=0,
        current_have=640,
        samples_per_insert=8.0,
        policy_lag=2,
        num_transitions=640,
        num_collected_episodes=7,
        payload_bytes=3 * 2**19,
    )
    assert report.text() == (
        f"In the past {shown} seconds, buffer statistics is as follows:\n"
        "+-------+-----------+-------------+---------+--------------+\n"
        "| Name  | pushed_in | sampled_out | removed | current_have |\n"
        "+-------+-----------+-------------+---------+--------------+\n"
        "| Value | 640       | 5120        | 0       | 640          |\n"
        "+-------+-----------+-------------+---------+--------------+\n"
        "+-------+--------------------+------------+-----------------+------------------------+\n"
        "| Name  | samples_per_insert | policy_lag | num_transitions | num_collected_episodes |\n"
        "+-------+--------------------+------------+-----------------+------------------------+\n"
        "| Value | 8.000000           | 2          | 640             | 7                      |\n"
        "+-------+--------------------+------------+-----------------+------------------------+\n"
        "+-------+------------------------+\n"
        "| Name  | memory_usage_mb/buffer |\n"
        "+-------+------------------------+\n"
        "| Value | 1.500000               |\n"
        "+-------+------------------------+"
    )


@pytest.mark.parametrize(("time_ms", "shown"), [(None, None), (12.5, 12.5), (math.nan, "nan")])
def test_the_time_of_reanalyzers_is_told_in_runs_that_have_some(time_ms: float | None, shown: object) -> None:
    report = BufferThroughputReport(
        train_iter=1, env_step=2, wall_s=61.0, past_s=60.0, pushed_in=640, sampled_out=5_120, removed=0,
        current_have=640, reanalyze_time_ms=time_ms,
    )  # fmt: skip
    fields = report.fields()
    assert list(fields)[-1] == ("memory_usage_mb/buffer" if shown is None else "reanalyze_time_ms")
    if shown is not None:
        assert str(fields["reanalyze_time_ms"]) == str(shown)


def test_the_table() -> None:
    assert REPORT.text().splitlines()[:7] == [
        "Where the past 60 seconds went:",
        "+-------------+-----------+-------------+",
        "| role        | learner   | collector   |",
        "+=============+===========+=============+",
        "| processes   | 1         | 2           |",
        "+-------------+-----------+-------------+",
        "| cpu_cores   | 0.98      | 1.20        |",
    ]
    shown = [line for line in REPORT.text().splitlines() if line.startswith("| ")]
    assert shown[3:] == [
        "| rss_mib     | 221       | 300         |",
        "| work        | 75.0 %    | 25.0 %      |",
        "| env         | 0.0 %     | 50.0 %      |",
        "| wait_data   | 18.8 %    | 0.0 %       |",
        "| wait_policy | 6.2 %     | 0.0 %       |",
        "| wait_credit | 0.0 %     | 25.0 %      |",
        "| wait_other  | 0.0 %     | 0.0 %       |",
    ]


def test_curves_are_over_seconds(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for name in ("log/buffer", "log/collector", "log/evaluator", "log/learner", "log/serial"):
        (tmp_path / name).mkdir(parents=True)
    with serial_logbook(folder, ProgressColumns(("Loss",))) as book:
        book.emit(REPORT)
    assert curves(folder.serial_tb)["vitals_sec/learner_wait_data"] == [(61, 0.1875)]
    assert "Where the past 60 seconds went:" in folder.serial_evaluator_log.read_text()
