"""What a user's environment reports of its episodes is in every log of a serial run, and survives a resume."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from remuda.runner.serial import Start
from remuda.storage.run_folder import RunFolder
from remuda.tests.logbook.event_reader import curves
from remuda.tests.runner.runs import run_tiny, tiny_config, write_user_folder


def progress(run: RunFolder) -> list[dict[str, float]]:
    header, *rows = (line.split("\t") for line in run.progress.read_text().splitlines())
    return [dict(zip(header, map(float, row), strict=True)) for row in rows]


def test_it_is_everywhere(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, "env.episode_info=[side, steps_to_go]", "log.sinks=[csv]")
    run = RunFolder(run_tiny(config, Start(tmp_path / "run")).run_dir)
    rows = progress(run)
    assert all(-1.0 <= row["MinSide"] <= row["MedianSide"] <= row["MaxSide"] <= 1.0 for row in rows[1:])
    assert all(row["MinStepsToGo"] >= 0.0 for row in rows[1:])
    assert abs(rows[0]["AverageTestSide"]) <= 1.0
    assert rows[0]["AverageSide"] != rows[0]["AverageSide"], "nan: nobody has trained yet"
    header = run.progress_csv.read_text().splitlines()[0].split(",")
    assert {"collector/side_median", "evaluator/steps_to_go_mean"} <= set(header)
    assert "\nside_mean: " in run.serial_collector_log.read_text()
    assert "| side_mean |" in run.serial_evaluator_log.read_text().replace("  ", " ")
    seen = curves(run.serial_tb)
    assert {f"{role}_{axis}/side_{statistic}" for role in ("collector", "evaluator") for axis in ("iter", "step")
            for statistic in ("mean", "std", "median", "min", "max")} <= seen.keys()  # fmt: skip
    assert {"collector_step/reward_median", "collector_step/length_median"} <= seen.keys()


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_the_discounted_return_stands_beside_the_return(algorithm: str, user: Path, tmp_path: Path) -> None:
    """Where nothing is discounted the two are the same."""
    if algorithm == "ppo":
        policy = {"type": "ppo", "hidden": [8], "horizon_steps": 16}
        write_user_folder(user, policy=policy, collector={})
    config = tiny_config(user, "policy.discount=1.0", "log.sinks=[csv]")
    run = RunFolder(run_tiny(config, Start(tmp_path / "run")).run_dir)
    assert "\ndiscounted_return_mean: " in run.serial_collector_log.read_text()
    assert "| discounted_return_mean |" in run.serial_evaluator_log.read_text()
    with open(run.progress_csv, newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    for role in ("collector", "evaluator"):
        for statistic in ("mean", "std", "max", "min", "median"):
            discounted = [row[f"{role}/discounted_return_{statistic}"] for row in rows]
            assert discounted == [pytest.approx(row[f"{role}/reward_{statistic}"], nan_ok=True) for row in rows]
    seen = curves(run.serial_tb)
    assert {"collector_step/discounted_return_mean", "evaluator_iter/discounted_return_median"} <= seen.keys()


def test_a_name_that_the_environment_does_not_report_is_nan_and_no_crash(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, "env.episode_info=[nobody_knows]", "stop.max_env_steps=120")
    rows = progress(RunFolder(run_tiny(config, Start(tmp_path / "run")).run_dir))
    assert all(row["AverageNobodyKnows"] != row["AverageNobodyKnows"] for row in rows)


@pytest.mark.parametrize("budget", [100, 200])
def test_episodes_between_rows_outlive_a_resume(budget: int, user: Path, tmp_path: Path) -> None:
    settings = ("env.episode_info=[side]", "log.progress_interval_env_steps=300")
    run_tiny(tiny_config(user, *settings, f"stop.max_env_steps={budget}"), Start(tmp_path / "run"))
    run = RunFolder(run_tiny(tiny_config(user, *settings), Start(tmp_path / "run", "resume")).run_dir)
    assert all(row["AverageSide"] == row["AverageSide"] for row in progress(run)[1:])
