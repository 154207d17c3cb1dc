"""A serial run whose environment steps are used up learns from the last of them, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.config.load import load_settings
from remuda.runner.serial import RunResult, Start, run
from remuda.tests.runner.runs import Flag, Ticking

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


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_every_batch_of_segments_is_learned_from(batches: int, tmp_path: Path) -> None:
    """The last one as well: of a budget of one batch nothing was learned. No episode ends in so few steps."""
    pendulum = {**PPO, "env": {"id": "Pendulum-v1", "num_envs": NUM_ENVS}}
    result = trained(tmp_path, pendulum, max_env_steps=NUM_ENVS * HORIZON * batches - 5)
    assert result.counters.env_step == NUM_ENVS * HORIZON * batches - NUM_ENVS, "the first resets are slots, too"
    assert result.counters.train_iter == batches


def test_replay_is_sampled_as_often_as_is_asked_for(tmp_path: Path) -> None:
    result = trained(tmp_path, DQN, max_env_steps=256)
    owed = 4 * (256 - 32 - 2 * NUM_ENVS) // 8  # the newest row of each environment may wait for its next observation
    assert result.counters.train_iter >= owed


def test_a_run_that_has_all_its_updates_does_no_more(tmp_path: Path) -> None:
    result = trained(tmp_path, DQN, max_env_steps=256, max_train_iters=20)
    assert result.counters.train_iter == 20
