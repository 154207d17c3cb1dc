"""A run whose bound has passed is over within a known time, whoever is missing and whenever they went."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

import pytest

from remuda.coordinator.experiment.ending import REPLACEMENT_S, STAGE_LONGEST_S
from remuda.tests.coordinator.configs import short_config
from remuda.tests.coordinator.invariants import Invariants
from remuda.tests.coordinator.simulation import World
from remuda.training.commander.commander import Commander
from remuda.wire.messages import Counters, ExperimentStatus, Role

MISSING: tuple[Role, ...] = ("learner", "collector", "evaluator")
BOUND_S = 8.0
SAVE_S = 20.0
"""What saving may take."""
GRACE_S = REPLACEMENT_S + sum(STAGE_LONGEST_S.values()) + SAVE_S
"""See "When a bound has passed" in docs/failure-model.md."""
NEVER_ENDED = (13, 24, 31)
"""Schedules of runs that did not end, once."""
CLOCK_S = 1.5
"""What a dying coordinator forgets of the run's clock, which is journaled once a second."""


@dataclass(frozen=True)
class Absence:
    """What happens to all workers of a role."""

    role: Role
    at_s: float
    how: Literal["killed", "hung", "deaf", "restarted"]
    """`deaf`: beats, makes progress, and takes nothing in; from the start, it never gets ready."""
    back_s: float | None = None
    """How long after this they are restarted; None for never."""


@dataclass(frozen=True)
class Schedule:
    stop: dict[str, object]
    absences: tuple[Absence, ...]
    crashes_s: tuple[float, ...]
    """When the coordinator is killed."""


def schedule_of(number: int) -> Schedule:
    """In every second schedule time is the only bound. Left alone, a run reaches any of its bounds after about
    BOUND_S."""
    chance = random.Random(number)
    stop: dict[str, object] = {"max_env_steps": 10**6, "max_wall_s": BOUND_S}
    if number % 2:
        stop |= chance.choice(({"max_env_steps": 640}, {"max_train_iters": 160}, {"stop_value": 64.0}))
        stop["max_wall_s"] = chance.choice((BOUND_S, 4 * BOUND_S))
    missing: list[Role] = [MISSING[number // 2 % 3], *(role for role in MISSING if chance.random() < 0.2)]
    absences = [
        Absence(
            role,
            chance.choice((0.0, 1.0, 3.0, 7.0, 7.5, 8.0, 8.5)),
            chance.choice(("killed", "killed", "hung", "deaf")),
            chance.choice((None, None, 5.0, 20.0)),
        )
        for role in missing
    ]
    crashes = [chance.uniform(0.0, 40.0) for _ in range(chance.choice((0, 0, 1, 3)))]
    return Schedule(stop, tuple(absences), tuple(sorted(crashes)))


def play(schedule: Schedule, seed: int) -> ExperimentStatus:
    """The status of the run once it is over, which it is in time."""
    world = World(short_config(stop=schedule.stop, limits={"save_s": SAVE_S}), seed=seed)
    world.updates_per_step = 1
    Invariants(world)
    world.herd(collectors=2)
    world.submit()
    began_s, passed_s, crashes = world.now_s, None, [*schedule.crashes_s]
    left = [*schedule.absences]
    while not world.closed:
        since_s = world.now_s - began_s
        for absence in [each for each in left if since_s >= each.at_s]:
            left.remove(absence)
            _happen(world, absence)
            if absence.back_s is not None:
                left.append(Absence(absence.role, since_s + absence.back_s, "restarted"))
        if crashes and since_s >= crashes[0]:
            crashes.pop(0)
            world.crash()
        world.step()
        if passed_s is None and _bound_is_passed(world):
            passed_s = world.now_s
        if passed_s is not None:
            limit_s = GRACE_S + len(schedule.crashes_s) * (world.downtime_s + CLOCK_S)
            assert world.now_s < passed_s + limit_s, f"{world.experiment()}; said: {world.said[-10:]}"
    return world.experiment()


def _happen(world: World, absence: Absence) -> None:
    for worker in [worker for worker in world.workers.values() if worker.role == absence.role]:
        if absence.how == "restarted":
            world.restart(worker)
        elif absence.how == "killed":
            world.kill(worker)
        else:
            worker.hung, worker.deaf = absence.how == "hung", absence.how == "deaf"


def _bound_is_passed(world: World) -> bool:
    status, stop = world.experiment(), world.config.stop
    counters = Counters(env_step=status.env_step, train_iter=status.train_iter, wall_s=status.wall_s)
    solved = stop.stop_value is not None and (status.last_return or 0.0) >= stop.stop_value
    return solved or Commander(world.config).reached(counters) is not None


@pytest.mark.parametrize("number", [*range(4), *NEVER_ENDED])
def test_a_run_whose_bound_has_passed_is_over_soon_whoever_is_missing(number: int) -> None:
    assert play(schedule_of(number), number).state == "finished"
