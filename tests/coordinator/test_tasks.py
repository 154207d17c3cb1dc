"""A curriculum over crashes of the coordinator: task, best and counters are exact, and nobody is told another story."""

from __future__ import annotations

import json
import random

import pytest

from remuda.config.schema import ExperimentConfig
from remuda.logbook.episode_reports import EvaluationReport
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import Faults, World
from remuda.tests.faults.sizes import LONG
from remuda.training.snapshot import TaskSnapshot

STEPS, MEAN_RETURN = (300, 900), 55


def settings(**more: object) -> ExperimentConfig:
    env = {
        "id": "CartPole-v1",
        "num_envs": 4,
        "schedule": [
            {"env_step": STEPS[0], "kwargs": {"size": 1}},
            {"mean_return": MEAN_RETURN, "kwargs": {"size": 2}},
            {"env_step": STEPS[1], "kwargs": {"size": 3}},
        ],
    }
    evaluator = {"count": 2, "episodes": 4, "interval_env_steps": 150}
    return config(env=env, evaluator=evaluator, stop={"max_env_steps": 1_200}, **more)


def world_of(seed: int, faults: Faults | None = None) -> World:
    return World(settings(), seed=seed, faults=faults).started(collectors=2, evaluators=2)


def finished(world: World) -> TaskSnapshot:
    """Its tasks began in their order, once each, and everybody heard the same of them."""
    world.run(3_000)
    status = world.experiment()
    assert status.state == "finished", status.reason
    assert status.env_step == world.unique_env_steps()
    began = [text for _, text in world.said if text.startswith("task ")]
    numbers = [int(text.split()[1]) for text in began]
    assert sorted(set(numbers)) == [1, 2, 3], "those said before a crash may be said again after it"
    assert {number: json.loads(told or "{}") for number, told in world.tasks.items()}.items() <= {
        0: {}, 1: {"size": 1}, 2: {"size": 2}, 3: {"size": 3}
    }.items()  # fmt: skip
    (journaled,) = world.journal.values()
    commander = journaled.recovered().snapshot.experiment.dispatch.commander
    assert (commander.task.number, commander.task.stage) == (3, 3)
    assert commander.best is not None
    evaluations = [report for report in world.reports if isinstance(report, EvaluationReport)]
    last = [report for report in evaluations if report.task == 3]
    assert commander.best[1] == max(sum(report.returns) / len(report.returns) for report in last)
    assert [report.task for report in evaluations] == sorted(report.task or 0 for report in evaluations)
    return commander.task


def test_tasks_begin_by_steps_and_by_returns() -> None:
    world = world_of(0)
    state = finished(world)
    assert STEPS[1] <= state.since_env_step < STEPS[1] + 100
    tasks = {meta.task for meta in world.written.values()}
    assert tasks == {0, 1, 2, 3}
    assert set(world.played.values()) == {0, 1, 2, 3}


@pytest.mark.parametrize("seed", range(8 if LONG else 1))
def test_tasks_that_a_callback_asks_for_begin_once_whenever_the_coordinator_dies(seed: int) -> None:
    evaluator = {"count": 2, "episodes": 4, "interval_env_steps": 150}
    world = World(
        config(callbacks=["remuda.tests.callbacks:Climbs"], evaluator=evaluator, stop={"max_env_steps": 1_200}),
        seed=seed,
        faults=Faults(loss=0.05, repeat=0.1, delay_s=0.2),
    ).started(collectors=2, evaluators=2)
    chance = random.Random(seed)
    world.crash_at = lambda: chance.random() < 0.003
    world.run(3_000)
    assert world.experiment().state == "finished", world.experiment().reason
    assert world.crashes >= 1
    assert {number: json.loads(told or "{}") for number, told in world.tasks.items()} == {
        number: {"size": number + 1} if number else {} for number in range(4)
    }
    (journaled,) = world.journal.values()
    assert journaled.recovered().snapshot.experiment.dispatch.commander.task.number == 3


@pytest.mark.parametrize("seed", range(12 if LONG else 2))
def test_the_coordinator_may_die_again_and_again_on_a_bad_network(seed: int) -> None:
    world = world_of(seed, Faults(loss=0.05, repeat=0.1, delay_s=0.2))
    chance = random.Random(seed)
    world.crash_at = lambda: chance.random() < 0.002

    def mischief() -> None:
        if world.deaths < 3 and chance.random() < 0.01:
            victim = chance.choice([worker for worker in world.workers.values() if worker.alive])
            world.restart(victim)

    world.check = mischief
    finished(world)
    assert min(world.crashes, world.deaths) >= 1
