"""A serial run saves, writes rows and evaluates at the very boundaries of its config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.config.load import load_settings
from remuda.runner.serial import RunResult, Start, run
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.runner.runs import Flag, Ticking, run_tiny, tiny_config


def env_steps_in_progress(run: RunFolder) -> list[int]:
    header, *rows = (line.split("\t") for line in run.progress.read_text().splitlines())
    return [int(row[header.index("TotalEnvInteracts")]) for row in rows]


def test_training_episodes_evaluate_a_run_without_evaluations_also_over_a_resume(user: Path, tmp_path: Path) -> None:
    evaluator = "evaluator={episodes: 0, interval_env_steps: 100, window_episodes: 10}"
    first = run_tiny(tiny_config(user, evaluator, "stop.max_env_steps=300"), Start(tmp_path / "run"))
    result = run_tiny(tiny_config(user, evaluator), Start(tmp_path / "run", "resume"))
    run, index = RunFolder(result.run_dir), CheckpointIndex(RunFolder(result.run_dir).ckpt)
    assert index.records[0].reward is None, "nobody had played yet"
    evaluated = {record.train_iter: record.reward for record in index.records if record.reward is not None}
    assert first.counters.train_iter in evaluated
    assert result.counters.train_iter in evaluated, "at once, without ten new episodes"
    assert result.best is not None
    assert result.best.reward_mean == max(evaluated.values())
    assert run.best.samefile(run.ckpt / result.best.record.file)
    assert "Test" not in run.progress.read_text(), "no column that would be nan, and be drawn instead of AverageEpRet"
    assert env_steps_in_progress(run)[0] == 50, "no row 0"


NUM_ENVS, HORIZON = 2, 8
PPO: dict[str, Any] = {
    "policy": {"type": "ppo", "horizon_steps": HORIZON, "epochs": 1, "minibatches": 1},
    "collector": {"count": 1},
}
DQN: dict[str, Any] = {
    "policy": {"type": "dqn", "hidden": [8], "n_step": 1},
    "learner": {"batch_size": 8},
    "collector": {"chunk_env_steps": 32},
    "buffer": {"min_rows": 32, "capacity": 1_000, "samples_per_insert": 4.0},
}


def trained(folder: Path, settings: dict[str, Any], **stop: object) -> RunResult:
    common = {"name": "short", "env": {"id": "CartPole-v1", "num_envs": NUM_ENVS}, "evaluator": {"episodes": 0}}
    config = load_settings({**common, **settings, "stop": {"stop_value": None, **stop}}, folder=folder).config
    result = run(config, Start(folder / "run"), stop=Flag(), clock=Ticking())
    assert not result.failed, result
    return result


@pytest.mark.parametrize("batches", [1, 3])
def test_every_batch_of_segments_is_learned_from(batches: int, tmp_path: Path) -> None:
    """The last one as well: of a budget of one batch nothing was learned. No episode ends in so few steps."""
    pendulum = {**PPO, "env": {"id": "Pendulum-v1", "num_envs": NUM_ENVS}}
    result = trained(tmp_path, pendulum, max_env_steps=NUM_ENVS * HORIZON * batches - 5)
    assert result.counters.env_step == NUM_ENVS * HORIZON * batches - NUM_ENVS, "the first resets are slots, too"
    assert result.counters.train_iter == batches


def test_replay_is_sampled_as_often_as_is_asked_for(tmp_path: Path) -> None:
    result = trained(tmp_path, DQN, max_env_steps=256)
    owed = 4 * (256 - 32 - 2 * NUM_ENVS) // 8  # the newest row of each environment may wait for its next observation
    assert owed <= result.counters.train_iter <= owed + 4 * 32 // 8, "at most the samples of a chunk more"
