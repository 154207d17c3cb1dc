"""A curriculum with real processes: the coordinator is killed twice, and everybody goes on in the same task."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from remuda.config.current import kwargs_of_stage, on_task, task_of
from remuda.config.load import load_config
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.tests.faults.herd import Herd, Journal, assert_exact
from remuda.tests.logbook.event_reader import curves
from remuda.tests.parallel.reading import progress, texts
from remuda.tests.parallel.user_folder import CONFIG, UserFolder

pytestmark = pytest.mark.processes

LEVELS = """
from my_envs import Horse

class Level(Horse):
    def __init__(self, level, pause_s):
        super().__init__(None, None, pause_s)
        self.level = level

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, self.level * (1.0 + reward), *rest

def make_env(level=1, pause_s=0.001):
    return Level(level, pause_s)
"""
LEAST, MOST = 5, 40
"""Returns of a level are between these times the level."""
CHANGES: dict[str, dict[str, object]] = {
    "env": {
        **CONFIG["env"],
        "make": "levels:make_env",
        "schedule": [{"env_step": 900, "kwargs": {"level": 10}}, {"mean_return": 50, "kwargs": {"level": 100}}],
    },
    "evaluator": {"count": 1, "episodes": 3, "interval_env_steps": 500},
    "stop": {"max_env_steps": 3_000},
}


def test_a_coordinator_that_is_killed_goes_on_in_the_same_task(tmp_path: Path) -> None:
    user, herd = UserFolder.make(tmp_path / "user", CHANGES), Herd(tmp_path / "herd", "lost_after_s=10")
    (user.root / "levels.py").write_text(LEVELS)
    try:
        coordinator = herd.coordinator()
        herd.workers()
        run = herd.submit(user)
        for env_step in (500, 1_500):  # before the first task begins, and after
            herd.wait_env_step("horse", env_step)
            coordinator = herd.kill_coordinator(coordinator)
        herd.wait_over("horse")
        herd.shut_down()
    finally:
        herd.end()
    assert_exact(herd, run, user)
    config = load_config(user.config).config
    names = [task_of(on_task(config, kwargs_of_stage(config, stage))) for stage in range(3)]
    index = CheckpointIndex(RunFolder(run).ckpt)
    assert [task.task for task in index.tasks] == names
    for record in index.records:
        level = 10 ** names.index(record.task) if record.task else 0
        assert record.reward is None or LEAST * level <= record.reward <= MOST * level
    assert index.best is not None
    assert index.best.task == names[2]
    began = texts(run / "log" / "commander" / "commander_logger.txt", "task ")
    assert {text.split()[1] for text in began} == {"1", "2"}
    task = Journal.of(run).snapshot.experiment.dispatch.commander.task
    assert (task.number, task.stage) == (2, 2)
    collected = sorted((chunk.meta.chunk, chunk.meta.task) for chunk in Journal.of(run).chunks)
    for (before, former), (after, later) in pairwise(collected):
        assert before.worker != after.worker or former <= later
    assert {task for _, task in collected} == {0, 1, 2}
    column = [row["Task"] for row in progress(run)]
    assert column == sorted(column)
    assert float(column[-1]) == 2
    shown = curves(run / "log" / "commander" / "commander_tb_logger")
    assert {value for _, value in shown["evaluator_step/task"]} == {0.0, 1.0, 2.0}
    assert {value for _, value in shown["collector_step/task"]} >= {0.0, 2.0}
