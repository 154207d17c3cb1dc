"""A client may change the priority of an experiment that waits or runs; the next free workers go by the new one."""

from __future__ import annotations

import pytest

from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.wire.messages import Done, ExperimentStatus, Prioritize, Rejected, StopExperiment


def busy_world() -> World:
    """One experiment has all workers of the herd, and two wait for them."""
    world = World(config(stop={"max_env_steps": 10**9}))
    world.herd(collectors=1)
    for name in ("x", "early", "late"):
        world.submit(name)
    world.steps(40)
    assert [each.state for each in world.status().experiments] == ["running", "queued", "queued"]
    return world


def of(world: World, name: str) -> ExperimentStatus:
    return next(each for each in world.status().experiments if each.name == name)


def until_one_begins(world: World) -> str:
    world.ask(StopExperiment("x", now=True))
    for _ in range(400):
        world.step()
        begun = [each.name for each in world.status().experiments if each.name != "x" and each.state != "queued"]
        if begun:
            return begun[0]
    raise AssertionError(f"nobody begins: {world.status().experiments}")


@pytest.mark.parametrize(("priority", "first"), [(0, "early"), (1, "late"), (-1, "early")])
def test_the_next_workers_go_by_the_new_priority(priority: int, first: str) -> None:
    world = busy_world()
    world.ask(Prioritize("late", priority))
    world.step()
    world.step()
    assert any(isinstance(reply, Done) for reply in world.replies)
    assert of(world, "late").priority == priority
    assert until_one_begins(world) == first


def test_a_restarted_coordinator_knows_the_new_priority() -> None:
    world = busy_world()
    world.ask(Prioritize("late", 7))
    world.steps(3)
    world.crash()
    assert of(world, "late").priority == 7
    assert until_one_begins(world) == "late"


def test_an_experiment_that_is_over_or_unknown_has_no_priority_to_change() -> None:
    world = busy_world()
    world.ask(StopExperiment("early"))
    world.steps(20)
    for name, code in (("early", "invalid"), ("nobody", "unknown")):
        world.ask(Prioritize(name, 1))
        world.steps(3)
        refused = [reply for reply in world.replies if isinstance(reply, Rejected)]
        assert refused[-1].code == code
