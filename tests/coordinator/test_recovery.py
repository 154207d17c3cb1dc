"""A coordinator that dies anywhere and is started again continues every experiment, to the step."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import DiskEffect, RecordCheckpoint
from remuda.logbook.episode_reports import EvaluationReport
from remuda.tests.coordinator.simulation import Faults, World
from remuda.tests.coordinator.test_state import config
from remuda.tests.faults.sizes import LONG


def finished(world: World) -> None:
    """The run ends by itself, and every counter is what was really collected."""
    world.run(3_000)
    status = world.experiment()
    assert status.state == "finished", status.reason
    assert status.env_step == world.unique_env_steps()
    assert status.env_step >= 1_200
    epochs = [row.epoch for row in world.progress]
    assert epochs == list(range(len(epochs))), "a row of progress came twice, or is missing"
    judged = [report.train_iter for report in world.reports if isinstance(report, EvaluationReport)]
    assert judged == sorted(world.rewards), "so did a point of the curve of evaluations"


def world_of(seed: int, faults: Faults | None = None, settings: ExperimentConfig | None = None) -> World:
    world = World(settings or config(stop={"max_env_steps": 1_200}), seed=seed, faults=faults)
    world.herd(collectors=2)
    world.submit()
    return world


def at(*points: int) -> Callable[[], bool]:
    """Crash at the points of these numbers, counted from the start of the world."""
    passed = iter(range(10**9))
    return lambda: next(passed) in points


def count_points() -> int:
    world = world_of(0)
    passed = 0

    def note() -> bool:
        nonlocal passed
        passed += 1
        return False

    world.crash_at = note
    finished(world)
    return passed


@pytest.mark.parametrize("part", range(4))
def test_it_may_die_at_any_message_boundary(part: int) -> None:
    """A sample of all of them here; `make faults` goes through every one."""
    points = count_points()
    assert points > 400
    for point in range(part, points, 4 if LONG else 4 * 13):
        world = world_of(0)
        world.crash_at = at(point)
        finished(world)
        assert world.crashes == 1


@pytest.mark.parametrize("seed", range(12))
def test_it_may_die_again_and_again_on_a_bad_network(seed: int) -> None:
    world = world_of(seed, Faults(loss=0.05, repeat=0.1, delay_s=0.2))
    chance = random.Random(seed)
    world.crash_at = lambda: chance.random() < 0.002
    finished(world)
    assert world.crashes >= 10


@pytest.mark.parametrize("seed", range(8))
def test_workers_may_die_as_well(seed: int) -> None:
    world = world_of(seed)
    chance = random.Random(seed)
    world.crash_at = lambda: chance.random() < 0.004

    def mischief() -> None:
        if chance.random() < 0.01:
            victim = chance.choice(list(world.workers.values()))
            if victim.alive:
                world.restart(victim)

    world.check = mischief
    finished(world)
    assert min(world.crashes, world.deaths) >= 1


def test_a_checkpoint_that_is_told_of_again_is_not_judged_again() -> None:
    """The coordinator dies when it has journaled the checkpoint, and before the learner hears so."""
    world = world_of(0)
    recorded: list[int] = []

    def note(effect: DiskEffect) -> None:
        if isinstance(effect, RecordCheckpoint):
            recorded.append(effect.record.train_iter)

    world.noted = note
    world.crash_at = lambda: len(recorded) > world.crashes and world.crashes < 3
    finished(world)
    assert world.crashes == 3
    assert recorded == sorted(set(recorded))
