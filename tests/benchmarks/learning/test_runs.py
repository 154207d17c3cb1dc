"""Runs of the learning benchmark: what is asked of both sides, and what is read from them."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from remuda.benchmarks.figure import ReferenceFailedError
from remuda.benchmarks.learning.runs import OURS, PEER, arguments, curve_of, theirs
from remuda.benchmarks.learning.tasks import BY_NAME

PENDULUM = BY_NAME["pendulum_ppo"]


def test_what_remuda_is_asked_for() -> None:
    asked = arguments(dataclasses.replace(PENDULUM, stop_value=None, max_env_steps=7), seed=3)
    assert asked[:7] == ["train", "ppo", "--env", "Pendulum-v1", "--seed", "3", "--json"]
    assert {"stop.stop_value=null", "stop.max_env_steps=7", "evaluator.episodes=20"} <= set(asked)


def test_a_task_with_a_config_of_its_own_asks_for_that() -> None:
    asked = arguments(BY_NAME["tmaze_ppo_feed_forward"], seed=1)
    assert asked[0] == "train"
    assert asked[1].endswith("/examples/t_maze_ppo.yaml")
    assert "--env" not in asked
    assert "policy.recurrent=null" in asked


def progress(folder: Path, *rows: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = "".join(f"{row}\n" for row in ("TotalEnvInteracts\tAverageTestEpRet", *rows))
    (folder / "progress.txt").write_text(table, encoding="utf-8")


def test_the_curve_is_that_of_progress_txt(tmp_path: Path) -> None:
    progress(tmp_path, "0\t-1200.5", "1000\t", "2000\tnan", "5000\t-150.25")
    assert curve_of(tmp_path) == [(0, -1200.5), (5000, -150.25)]


def test_of_several_policies_the_lowest_return_counts(tmp_path: Path) -> None:
    progress(tmp_path / "log" / "one", "0\t0.25", "10\t0.75", "20\t1.0")
    progress(tmp_path / "log" / "two", "0\t0.5", "10\t0.5", "20\tnan")
    assert curve_of(tmp_path, ("one", "two")) == [(0, 0.25), (10, 0.5)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout whose peer is our own interpreter."""
    (tmp_path / "benchmarks" / "peers" / PEER).mkdir(parents=True)
    bin_dir = tmp_path / ".venv-peers" / PEER / "bin"
    bin_dir.mkdir(parents=True)
    (bin_dir / "python").symlink_to(sys.executable)
    return tmp_path


def script(root: Path, code: str) -> None:
    (root / "benchmarks" / "peers" / PEER / "learning.py").write_text(code, encoding="utf-8")


def test_a_run_of_the_peer_is_its_last_line(root: Path) -> None:
    printed = '{"reached": %s, "env_steps": 9, "curve": [[5, 1.5], [9, 2]]}'
    script(root, f"import sys; print('hello'); print({printed!r} % ('false' if '--seed=4' in sys.argv else 'true'))")
    run = theirs(PENDULUM, 4, root=root)
    assert (run.task, run.side, run.seed, run.reached, run.env_steps) == ("pendulum_ppo", PEER, 4, False, 9)
    assert run.curve == [(5, 1.5), (9, 2.0)]
    assert run.last_return == 1.75
    assert run.wall_s > 0
    assert run.other_cores is not None
    assert run.processor_s is not None
    assert theirs(PENDULUM, 5, root=root).reached
    assert run.side != OURS


def test_a_peer_that_fails_or_is_not_there_says_why(root: Path) -> None:
    script(root, "raise SystemExit('no such environment')")
    with pytest.raises(ReferenceFailedError, match="no such environment"):
        theirs(PENDULUM, 0, root=root)
    with pytest.raises(ReferenceFailedError, match="not installed"):
        theirs(PENDULUM, 0, root=root / "elsewhere")
