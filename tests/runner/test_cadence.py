"""When a serial run saves, writes rows and evaluates: at the very boundaries of its config."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from remuda.runner.serial import Start
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.runner.runs import run_tiny, tiny_config

ONE_STEP_AT_A_TIME = (
    "env.num_envs=1", "policy.n_step=1", "collector.chunk_env_steps=10", "buffer.min_rows=4",
    "learner.batch_size=4", "evaluator.interval_env_steps=1000000",
)  # fmt: skip


def env_steps_in_progress(run: RunFolder) -> list[int]:
    header, *rows = (line.split("\t") for line in run.progress.read_text().splitlines())
    return [int(row[header.index("TotalEnvInteracts")]) for row in rows]


def test_five_stretches_of_ten_steps_with_intervals_of_10_and_20(user: Path, tmp_path: Path) -> None:
    config = tiny_config(
        user, *ONE_STEP_AT_A_TIME, "stop.max_env_steps=50", "checkpoint={interval_env_steps: 10, keep: 0}",
        "log.progress_interval_env_steps=20",
    )  # fmt: skip
    run = RunFolder(run_tiny(config, Start(tmp_path / "run")).run_dir)
    assert [record.env_step for record in CheckpointIndex(run.ckpt).records] == [0, 10, 20, 30, 40, 50]
    assert env_steps_in_progress(run) == [0, 20, 40, 50]
    assert {path.name for path in run.ckpt.glob("iteration_*")} == {
        record.file for record in CheckpointIndex(run.ckpt).records
    }


@pytest.mark.parametrize(
    ("mode", "checkpoint", "stay"),
    [
        ("all", "{interval_env_steps: 10, keep: 0}", [0, 10, 20, 30, 40, 50]),
        ("last", "{interval_env_steps: 10, keep: 1}", [0, 50]),
        ("gap", "{interval_env_steps: 20, keep: 0}", [0, 20, 40, 50]),
        ("last+gap", "{interval_env_steps: 20, keep: 0}", [0, 20, 40, 50]),
        ("none", "{interval_env_steps: null}", [0, 50]),
    ],
)
def test_snapshot_modes_of_rlpyt(mode: str, checkpoint: str, stay: list[int], user: Path, tmp_path: Path) -> None:
    """As docs/coming-from.md maps them; the initial, the best and the last, which a resume needs, always stay."""
    config = tiny_config(
        user, *ONE_STEP_AT_A_TIME, "stop={max_env_steps: 50, stop_value: null}", f"checkpoint={checkpoint}"
    )
    index = CheckpointIndex(run_tiny(config, Start(tmp_path / mode)).run_dir / "ckpt")
    assert [record.env_step for record in index.records] == stay
    assert index.best is not None
    assert index.best.env_step in (0, 50), "the only ones that were evaluated"


@pytest.mark.parametrize(
    ("interval", "rows"), [(35, [0, 35, 70, 100]), (4, [0, 8, 20, 28, 40, 48, 60, 68, 80, 88, 100])]
)
def test_rows_stand_at_multiples_of_their_interval_whatever_the_chunk(
    interval: int, rows: list[int], user: Path, tmp_path: Path
) -> None:
    settings = (*ONE_STEP_AT_A_TIME, "stop.max_env_steps=100", f"log.progress_interval_env_steps={interval}")
    run = RunFolder(run_tiny(tiny_config(user, *settings), Start(tmp_path / "run")).run_dir)
    assert env_steps_in_progress(run) == rows


def test_the_budget_is_reached_to_the_step_whatever_the_chunk(user: Path, tmp_path: Path) -> None:
    settings = (*ONE_STEP_AT_A_TIME, "stop.max_env_steps=97", "log.progress_interval_env_steps=40")
    run = RunFolder(run_tiny(tiny_config(user, *settings), Start(tmp_path / "run")).run_dir)
    assert env_steps_in_progress(run) == [0, 40, 80, 97]


def test_checkpoints_by_time(user: Path, tmp_path: Path) -> None:
    config = tiny_config(
        user, *ONE_STEP_AT_A_TIME, "stop.max_env_steps=300",
        "checkpoint={interval_env_steps: null, interval_s: 0.05, keep: 0}",
    )  # fmt: skip
    run = RunFolder(run_tiny(config, Start(tmp_path / "run")).run_dir)  # on a clock that a look moves on by 1 ms
    saved_s = [record.wall_s for record in CheckpointIndex(run.ckpt).records]
    assert len(saved_s) > 4
    assert all(after - before >= 0.05 for before, after in itertools.pairwise(saved_s[:-1]))
    assert max(after - before for before, after in itertools.pairwise(saved_s)) < 0.2


def test_training_without_evaluations(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, "evaluator={episodes: 0, interval_env_steps: 100, window_episodes: 10}")
    result = run_tiny(config, Start(tmp_path / "run"))
    run, index = RunFolder(result.run_dir), CheckpointIndex(RunFolder(result.run_dir).ckpt)
    evaluated = [record for record in index.records if record.reward is not None]
    assert evaluated, "by the training episodes"
    assert index.records[0].reward is None, "nobody had played yet"
    assert result.best is not None
    assert result.best.reward_mean == max(record.reward or 0.0 for record in evaluated)
    assert run.best.stat().st_ino == (run.ckpt / result.best.record.file).stat().st_ino
    assert "Test" not in run.progress.read_text(), "no column that would be nan, and be drawn instead of AverageEpRet"
    assert env_steps_in_progress(run)[0] == 50, "no row 0"
    said = run.serial_evaluator_log.read_text()
    assert "over the newest 10 training episodes (the best so far)" in said
    assert "=== Evaluation" not in said


def test_training_episodes_end_a_run_that_has_reached_the_stop_value(user: Path, tmp_path: Path) -> None:
    evaluator = "evaluator={episodes: 0, interval_env_steps: 100, window_episodes: 10}"
    result = run_tiny(tiny_config(user, evaluator, "stop.stop_value=-1000"), Start(tmp_path / "run"))
    assert result.reason == "stop_value"
    assert 100 <= result.counters.env_step < 400


def test_a_resumed_run_goes_on_with_the_episodes_that_evaluate(user: Path, tmp_path: Path) -> None:
    evaluator = "evaluator={episodes: 0, interval_env_steps: 100, window_episodes: 10}"
    whole = run_tiny(tiny_config(user, evaluator), Start(tmp_path / "whole"))
    run_tiny(tiny_config(user, evaluator, "stop.max_env_steps=300"), Start(tmp_path / "run"))
    result = run_tiny(tiny_config(user, evaluator), Start(tmp_path / "run", "resume"))
    rewards = [
        {record.train_iter: record.reward is None for record in CheckpointIndex(run.run_dir / "ckpt").records}
        for run in (whole, result)
    ]
    assert rewards[1][max(rewards[1])] is False, "evaluated at once, without ten new episodes"
    assert rewards[0][max(rewards[0])] is False
