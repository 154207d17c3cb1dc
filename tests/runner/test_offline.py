"""An offline run learns from a dataset alone: no environment is stepped, and updates count in place of steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from remuda.buffer.episodes import DatasetError, Episodes, write_dataset
from remuda.runner.serial import Start
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.tests.runner.runs import forget_steps, run_tiny, steps_really_taken, tiny_config

pytest.importorskip("minari", reason="needs pip install 'remuda[datasets]'")
pytest.importorskip("h5py", reason="needs pip install 'remuda[datasets]'")


def walked(folder: Path, steps: int, *, features: int = 2) -> Path:
    rng = np.random.default_rng(0)
    observations = rng.uniform(-6.0, 6.0, (steps + 1, features)).astype(np.float32)
    acted, rewards = rng.integers(2, size=steps), rng.standard_normal(steps).astype(np.float32)
    episodes = Episodes(observations, acted, rewards, np.zeros(steps, np.bool_), np.array([steps]))
    space = spaces.Box(-20.0, 20.0, (features,), np.float32), spaces.Discrete(2)
    write_dataset(folder, episodes, spaces=space, env_spec=None, algorithm="by hand", text="")
    return folder


def test_an_offline_run_evaluates_by_updates_takes_no_step_and_continues(tmp_path: Path) -> None:
    dataset = walked(tmp_path / "walks", 200)
    offline = (f"collector.dataset={dataset}", "evaluator.interval_env_steps=40", "checkpoint.keep=0")
    forget_steps()
    first = run_tiny(tiny_config(tmp_path, *offline, "stop.max_train_iters=100"), Start(tmp_path / "run"))
    assert not first.failed, first.explanation
    assert (first.reason, first.counters.train_iter, first.counters.env_step) == ("max_train_iters", 100, 100)
    again = run_tiny(
        tiny_config(tmp_path, *offline, "stop.max_env_steps=130"), Start(tmp_path / "run", on_exists="resume")
    )
    assert (again.reason, again.counters.train_iter, again.counters.episode) == ("max_env_steps", 130, 0)
    assert steps_really_taken() == 0
    records = CheckpointIndex(tmp_path / "run" / "ckpt").records
    evaluated = [record.train_iter for record in records if record.reward is not None]
    assert evaluated == [0, 40, 80, 100, 120, 130]
    assert all(record.env_step == record.train_iter for record in records)
    assert "replay is back: 200 rows" in (tmp_path / "run/log/evaluator/evaluator_logger.txt").read_text()


def test_a_dataset_that_does_not_fit_starts_nothing(tmp_path: Path) -> None:
    dataset = walked(tmp_path / "walks", 200)
    small = tiny_config(tmp_path, f"collector.dataset={dataset}", "buffer.capacity=100")
    with pytest.raises(DatasetError, match=r"has 200 steps, and the buffer holds 100: set buffer.capacity to 200"):
        run_tiny(small, Start(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
