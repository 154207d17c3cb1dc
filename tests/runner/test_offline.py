"""An offline run learns from a dataset alone: no environment is stepped, and updates count in place of steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from remuda.buffer import episodes as episode_files
from remuda.buffer.episodes import DatasetError, Episodes, write_dataset
from remuda.runner.serial import Start
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.tests.runner.runs import forget_steps, run_tiny, steps_really_taken, tiny_config

pytest.importorskip("minari", reason="needs pip install 'remuda[datasets]'")
pytest.importorskip("h5py", reason="needs pip install 'remuda[datasets]'")


def walked(folder: Path, steps: int, *, features: int = 2, episodes: int = 1, finite: bool = True) -> Path:
    """`finite`: without a nan in the second episode."""
    rng = np.random.default_rng(0)
    observations = rng.uniform(-6.0, 6.0, (steps + episodes, features)).astype(np.float32)
    if not finite:
        observations[steps // episodes + 2] = np.nan
    acted, rewards = rng.integers(2, size=steps), rng.standard_normal(steps).astype(np.float32)
    lengths = np.full(episodes, steps // episodes)
    made = Episodes(observations, acted, rewards, np.zeros(steps, np.bool_), lengths)
    space = spaces.Box(-20.0, 20.0, (features,), np.float32), spaces.Discrete(2)
    write_dataset(folder, made, spaces=space, env_spec=None, algorithm="by hand", text="")
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


@pytest.mark.parametrize("finite", [True, False])
def test_demonstrations_are_read_once_and_checked_by_their_ends(
    tmp_path: Path, finite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake between the ends is found by the learner, with the same words."""
    read: list[int] = []
    own = episode_files._episode

    def counted(one: Any, source: Path) -> Episodes:
        read.append(int(one.id))
        return own(one, source)

    monkeypatch.setattr(episode_files, "_episode", counted)
    dataset = walked(tmp_path / "walks", 200, episodes=5, finite=finite)
    config = tiny_config(tmp_path, f"buffer.demonstrations={dataset}", "stop.max_env_steps=50")
    if finite:
        result = run_tiny(config, Start(tmp_path / "run"))
        assert not result.failed, result.explanation
    else:
        with pytest.raises(DatasetError, match=f"^{dataset} has observations that are not finite$"):
            run_tiny(config, Start(tmp_path / "run"))
    assert read == [0, 4, 0, 1, 2, 3, 4]
