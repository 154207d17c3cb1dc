"""Stored runs: a file for each task, and a picture of each environment with all its tasks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from remuda.benchmarks.learning.picture import title, told
from remuda.benchmarks.learning.runs import OURS, PEER, Run
from remuda.benchmarks.learning.stored import RESULTS, picture_of, read, store
from remuda.benchmarks.learning.tasks import BY_NAME

SOLVE = BY_NAME["pendulum_ppo"]


def run(side: str, seed: int, *, reached: bool = True, other_cores: float | None = None) -> Run:
    return Run(SOLVE.name, side, seed, reached, 5, 2.0, [(0, -9.0), (5, 0.0)], other_cores)


def test_what_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    runs = [run(side, seed) for seed in range(2) for side in (OURS, PEER)]
    store(SOLVE, runs, None, tmp_path)
    head, *lines = [msgspec.json.decode(line) for line in (tmp_path / "pendulum_ppo.jsonl").read_bytes().splitlines()]
    assert head["task"]["env_id"] == "Pendulum-v1"
    assert [msgspec.convert(line, Run) for line in lines[:4]] == runs
    what = ("solved", "wall", "env_steps")
    assert [line["name"] for line in lines[4:]] == [f"learning_pendulum_ppo_{one}" for one in what]
    assert (tmp_path / "pendulum.png").stat().st_size > 1_000
    assert capsys.readouterr().out.count("learning_pendulum_ppo") == 3


def test_all_tasks_of_an_environment_are_in_its_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    store(SOLVE, [run(OURS, 0)], None, tmp_path)
    one = (tmp_path / "pendulum.png").read_bytes()
    store(BY_NAME["pendulum_sac"], [run(OURS, 0)], None, tmp_path)
    assert (tmp_path / "pendulum.png").read_bytes() != one
    (tmp_path / "pendulum_sac.jsonl").unlink()
    picture_of("pendulum", tmp_path)
    assert (tmp_path / "pendulum.png").read_bytes() == one


def test_of_what_is_not_stored_there_is_no_picture(tmp_path: Path) -> None:
    picture_of("pendulum", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_comes_with_the_repository_can_be_read() -> None:
    files = sorted(RESULTS.glob("*.jsonl"))
    assert files
    assert [path.name for path in files if read(path).task.name != path.stem] == []


def test_the_legend_tells_seconds_only_where_they_mean_something() -> None:
    assert told(SOLVE, OURS, [run(OURS, 0), run(OURS, 1, reached=False)]) == "PPO: 1 of 2 seeds, 2 s"
    assert told(SOLVE, PEER, [run(PEER, 0, other_cores=0.9)]) == "PPO, stable-baselines3: 1 of 1 seed"
    endless = dataclasses.replace(SOLVE, stop_value=None)
    assert told(endless, OURS, [run(OURS, 0), run(OURS, 1)]) == "PPO: 2 seeds, 2 s"


def test_the_title_says_who_must_not_get_there() -> None:
    assert title([SOLVE]) == "Pendulum-v1; runs end at -200"
    maze = [BY_NAME["tmaze_r2d2"], BY_NAME["tmaze_dqn"]]
    assert title(maze) == "TMaze; runs end at 0.95; goal: all seeds get there, but none of DQN"
