"""Evaluations of a serial run take no longer than they may, whatever the environment does, and are seen."""

from __future__ import annotations

from pathlib import Path

from remuda.runner.serial import Start, run
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.runner.runs import Flag, Ticking, run_tiny, tiny_config
from remuda.wire.messages import ExperimentStatus

ENDLESS = "env.kwargs={endless: true}"


def test_an_episode_that_never_ends_is_cut_with_a_warning(user: Path, tmp_path: Path) -> None:
    result = run_tiny(tiny_config(user, ENDLESS, "evaluator.max_episode_steps=50"), Start(tmp_path / "run"))
    folder = RunFolder(result.run_dir)
    log = folder.serial_evaluator_log.read_text()
    assert (result.reason, result.failed) == ("max_env_steps", False)
    assert "[WARNING] 4 of 4 evaluation episodes had not ended after 50 steps and were cut" in log
    assert "current episode: 4, cut after 50 steps" in log
    assert "; 4 of them cut at evaluator.max_episode_steps" in log
    assert "| cut_count" in log


def test_an_episode_that_ends_at_its_last_step_is_not_cut(user: Path, tmp_path: Path) -> None:
    result = run_tiny(tiny_config(user), Start(tmp_path / "run"))
    assert "cut" not in RunFolder(result.run_dir).serial_evaluator_log.read_text()


def test_max_wall_s_bounds_an_evaluation(user: Path, tmp_path: Path) -> None:
    """A millisecond passes with each step: half a second, and five seconds more for the evaluation."""
    result = run_tiny(tiny_config(user, ENDLESS, "stop.max_wall_s=0.5"), Start(tmp_path / "run"))
    folder = RunFolder(result.run_dir)
    log = folder.serial_evaluator_log.read_text()
    assert (result.reason, result.failed, result.best) == ("max_wall_s", False, None)
    assert 5.5 < result.counters.wall_s < 6.5
    assert "the evaluation of iteration_0.pth.tar is given up: stop.max_wall_s is over" in log
    assert CheckpointIndex(folder.ckpt).last is not None


def test_it_is_seen_and_said_that_an_evaluation_is_waited_for(user: Path, tmp_path: Path) -> None:
    config = tiny_config(user, ENDLESS, "stop.max_wall_s=40", "evaluator.max_episode_steps=60000")
    seen: list[ExperimentStatus] = []
    result = run(config, Start(tmp_path / "run"), stop=Flag(), on_progress=seen.append, clock=Ticking())
    waiting = [status.waiting_for for status in seen if status.waiting_for is not None]
    assert set(waiting) == {"evaluating iteration_0.pth.tar: 0 of 4 episodes are over"}
    assert len(waiting) > 100
    assert seen[-1].waiting_for is None
    log = RunFolder(result.run_dir).serial_evaluator_log.read_text()
    assert "evaluating iteration_0.pth.tar: 0 of 4 episodes are over after 30 s" in log
