"""A serial run through a curriculum: what is stepped and played, what is shown, and what a killed run goes on with."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from remuda.config.current import kwargs_of_stage, on_task, task_of
from remuda.config.schema import ExperimentConfig
from remuda.environments.errors import EnvironmentBuildError
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.playable import checkpoint_playable, of_run
from remuda.runner.serial import Start
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.faults.sizes import LONG
from remuda.tests.logbook.event_reader import curves
from remuda.tests.runner.killing import Killer, run_to_its_death
from remuda.tests.runner.runs import TINY, run_tiny, tiny_config, write_user_folder
from remuda.tests.runner.test_run_folder import rows

LEVEL = """
import gymnasium
import numpy as np

STEPS = {}

class Level(gymnasium.Env):
    # Nothing ever changes in it, so a run is the same wherever its episodes begin again.
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size, width):
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (width,), np.float32)
        self.size = size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        STEPS[self.size] = STEPS.get(self.size, 0) + 1
        return np.zeros(self.observation_space.shape, np.float32), float(self.size), False, False, {}

def make(size=1, width=2):
    return Level(size, width)
"""
SCHEDULE = [
    {"env_step": 130, "kwargs": {"size": 2}},
    {"mean_return": 10, "kwargs": {"size": 3}},
    {"env_step": 310, "kwargs": {"size": 4}},
]
CUT = 5
"""Steps of an evaluation's episode, so that its return is `CUT * size`."""


def level_config(
    folder: Path, schedule: object = SCHEDULE, callbacks: Sequence[str] = (), **evaluator: object
) -> ExperimentConfig:
    env = TINY["env"] | {"make": "level:make", "schedule": schedule}
    told = TINY["evaluator"] | {"max_episode_steps": CUT, "episodes": 2} | evaluator
    policy = TINY["policy"] | {"n_step": 1}  # no row waits for later steps, which a killed run would lack
    checkpoint = {"interval_env_steps": 150, "keep": 0}
    write_user_folder(folder, env=env, evaluator=told, checkpoint=checkpoint, policy=policy,
                      callbacks=list(callbacks))  # fmt: skip
    (folder / "level.py").write_text(LEVEL)
    return tiny_config(folder)


@dataclass(frozen=True)
class Story:
    """What a run has to say of its tasks."""

    begun: list[tuple[int, int]]
    """Number and environment step of each."""
    checkpoints: list[tuple[int, int]]
    """Updates and environment steps."""
    evaluated: dict[int, tuple[float, str]]
    """Return and task, by updates."""
    tasks: list[tuple[str, int]]
    best: tuple[int, float | None] | None
    column: list[tuple[float, float]]

    @classmethod
    def of(cls, folder: RunFolder) -> Story:
        text = folder.serial_evaluator_log.read_text()
        said = {int(number): int(step) for number, step in re.findall(r"task (\d) begins at env_step (\d+)", text)}
        index = CheckpointIndex(folder.ckpt)
        return cls(
            sorted(said.items()),
            [(each.train_iter, each.env_step) for each in index.records],
            {each.train_iter: (each.reward, each.task) for each in index.records if each.reward is not None},
            [(task.task, task.env_step) for task in index.tasks],
            None if index.best is None else (index.best.train_iter, index.best.reward),
            [(row["TotalEnvInteracts"], row["Task"]) for row in rows(folder.progress) if row["Task"] >= 0],
        )


def test_tasks_are_stepped_played_and_shown(tmp_path: Path) -> None:
    config = level_config(tmp_path / "user")
    result = run_tiny(config, Start(tmp_path / "run"))
    folder = RunFolder(result.run_dir)
    story = Story.of(folder)
    (one, at_one), (two, at_two), (three, at_three) = story.begun
    assert (one, two, three) == (1, 2, 3)
    assert (at_one, at_three) == (132, 312), "the first multiples of a chunk's 12 steps"
    assert at_one <= at_two < at_three
    counted: dict[int, int] = sys.modules["level"].STEPS
    played = sum(each.reward is not None for each in CheckpointIndex(folder.ckpt).records) * 2 * CUT
    assert sum(counted.values()) == result.counters.env_step + played
    names = [task_of(on_task(config, kwargs_of_stage(config, stage))) for stage in range(4)]
    assert [task for task, _ in story.tasks] == names, "where the page marks its curves"
    for reward, task in story.evaluated.values():
        assert reward == CUT * (1 + names.index(task))
    assert story.best is not None
    assert story.best[1] == 4 * CUT
    assert [task for _, task in story.column] == sorted(task for _, task in story.column)
    assert {task for _, task in story.column} == {0.0, 2.0, 3.0}, "its first evaluation has ended task 1 at once"
    points = curves(folder.serial_tb)
    assert {value for _, value in points["evaluator_step/task"]} == {0.0, 1.0, 2.0, 3.0}


@pytest.mark.parametrize(
    "callbacks", [pytest.param((), marks=pytest.mark.faults_long), ("remuda.tests.callbacks:Climbs",)]
)
def test_a_killed_run_keeps_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, callbacks: Sequence[str]) -> None:
    """Tasks of a schedule, and those that a callback asks for."""
    config, killer = level_config(tmp_path / "user", () if callbacks else SCHEDULE, callbacks), Killer(at=0)
    run_to_its_death(config, tmp_path / "whole", killer, monkeypatch)
    whole = Story.of(RunFolder(tmp_path / "whole"))
    assert [number for number, _ in whole.begun] == [1, 2, 3]
    moments = range(2, killer.moments) if LONG else range(20, killer.moments, killer.moments // 3)
    resumed = 0
    for at in moments:
        root = tmp_path / f"killed-{at}"
        run_to_its_death(config, root, Killer(at), monkeypatch)
        try:
            run_tiny(config, Start(root, "resume"))
        except CheckpointError:  # there was none yet
            continue
        story = Story.of(RunFolder(root))  # a resumed run evaluates the checkpoint that it begins with, if nobody did
        assert story.evaluated.items() >= whole.evaluated.items(), at
        assert replace(story, evaluated=whole.evaluated) == whole, at
        resumed += 1
    assert resumed >= 2


@pytest.mark.parametrize(
    ("schedule", "evaluator", "why"),
    [
        ([], {"env": {"kwargs": {"width": 5}}}, r"evaluator\.env: its observation space is .* \(5,\)"),
        ([{"env_step": 9, "kwargs": {"width": 5}}], {}, r"env\.schedule\[0\]: its observation space is .* \(5,\)"),
    ],
)
def test_misfit_environments_end_the_run(tmp_path: Path, schedule: object, evaluator: dict[str, Any], why: str) -> None:
    config = level_config(tmp_path / "user", schedule, (), **evaluator)
    with pytest.raises(EnvironmentBuildError, match=why):
        run_tiny(config, Start(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_policy_is_played_at_its_task_and_on_the_environment_of_evaluations(tmp_path: Path) -> None:
    """Also where a callback asked for the task, which is in no schedule."""
    callbacks = ("remuda.tests.callbacks:Climbs",)
    config = level_config(tmp_path / "user", (), callbacks, env={"max_episode_steps": 4})
    result = run_tiny(config, Start(tmp_path / "run"))
    folder = RunFolder(result.run_dir)
    assert max(each.reward or 0.0 for each in CheckpointIndex(folder.ckpt).records) > 4
    for record in CheckpointIndex(folder.ckpt).records:
        playable = of_run(checkpoint_playable(folder.ckpt / record.file, trust_code=True), folder.root)
        assert playable.env.max_episode_steps == 4
        if record.reward is not None:
            assert record.reward == 4 * playable.env.kwargs.get("size", 1)  # type: ignore[operator]
