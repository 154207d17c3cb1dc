"""The tasks: their settings are there, for the algorithm and the return that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.benchmarks.learning.page import ELSEWHERE, example_of
from remuda.benchmarks.learning.tasks import BY_NAME, TASKS, Task, config_file
from remuda.config.load import load_config

ROOT = Path(__file__).parents[3]
PEER_SCRIPT = ROOT / "benchmarks" / "peers" / "stable-baselines3" / "learning.py"
CARTPOLE = {"dqn", "ppo", "impala", "pqn", "rainbow", "r2d2", "sac", "muzero"}


def test_every_task_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(TASKS)
    assert "tmaze_ppo_feed_forward" in BY_NAME
    assert BY_NAME["lunarlander_ppo"].environment == "lunarlander"


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_its_settings_are_what_users_get(task: Task) -> None:
    config = load_config(config_file(task), overrides=[*task.overrides]).config
    assert config.policy.type == task.algorithm
    assert tuple(config.policies or ()) == task.policies


@pytest.mark.parametrize("task", [task for task in TASKS if task.peer], ids=lambda task: task.name)
def test_the_peer_has_settings_for_it(task: Task) -> None:
    assert f'("{task.algorithm}", "{task.env_id}"):' in PEER_SCRIPT.read_text(encoding="utf-8")


def test_cartpole_is_for_all_algorithms_of_counted_actions() -> None:
    assert {task.algorithm for task in TASKS if task.environment == "cartpole"} == CARTPOLE


def test_only_those_that_remember_should_solve_the_maze() -> None:
    maze = [task for task in TASKS if task.environment == "tmaze"]
    assert {task.label for task in maze if task.solvable} == {"R2D2", "PPO recurrent", "IMPALA recurrent"}
    assert {task.label for task in maze if not task.solvable} == {"PPO feed forward", "DQN"}


def test_every_example_is_run_to_its_end_by_a_task_or_elsewhere() -> None:
    examples = {path.name for path in (ROOT / "examples").glob("*.yaml")}
    run = {example_of(task) for task in TASKS} - {None}
    assert run | set(ELSEWHERE) == examples
    assert not run & set(ELSEWHERE)


def test_days_are_spent_only_where_they_are_asked_for() -> None:
    assert {task.environment for task in TASKS if not task.by_default} == {"pong"}
