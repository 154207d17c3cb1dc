"""The scheduler: minimum first and all or nothing, priorities, and a reason for each that waits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.coordinator.scheduler import Demand, plan
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.wire.messages import Done, ExperimentStatus, Prioritize, Rejected, Role, StopExperiment

MINIMUM: dict[Role, int] = {"learner": 1, "collector": 1, "evaluator": 1}


def demand(name: str, order: int, collectors: int, *, priority: int = 0) -> Demand:
    return Demand(name, priority, order, MINIMUM, {"learner": 1, "collector": collectors, "evaluator": 1})


def herd(learners: int, collectors: int, evaluators: int) -> dict[Role, list[str]]:
    return {
        "learner": [f"l{i}" for i in range(learners)],
        "collector": [f"c{i}" for i in range(collectors)],
        "evaluator": [f"e{i}" for i in range(evaluators)],
    }


def test_an_experiment_that_waits_for_one_that_rests_says_so_and_takes_nothing() -> None:
    tired = replace(demand("a", 0, 1), resting=frozenset({"c0"}))
    decided = plan([tired], herd(1, 1, 1))
    assert decided.grants == ()
    assert decided.waiting == {"a": "waits for 1 collector (1 free, 1 of them resting after a failure)"}


def test_a_worker_that_rests_for_several_goes_to_none_of_them() -> None:
    tired = frozenset({"c0"})
    demands = [replace(demand(name, order, 1), resting=tired) for order, name in enumerate("ab")]
    decided = plan([*demands, demand("c", 2, 1)], herd(3, 3, 3))
    collectors = {grant.experiment: grant.worker for grant in decided.grants if grant.role == "collector"}
    assert collectors == {"a": "c1", "b": "c2", "c": "c0"}


@given(
    counts=st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 3)),
    wishes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.sets(st.integers(0, 4))), max_size=5),
)
def test_workers_that_rest_are_not_dealt(counts: tuple[int, int, int], wishes: list[tuple[int, int, set[int]]]) -> None:
    demands = [
        replace(
            demand(f"x{order}", order, collectors, priority=priority),
            resting=frozenset(f"{role}{number}" for role in "lce" for number in tired),
        )
        for order, (collectors, priority, tired) in enumerate(wishes)
    ]
    decided = plan(demands, herd(*counts))
    resting = {each.experiment: each.resting for each in demands}
    assert all(grant.worker not in resting[grant.experiment] for grant in decided.grants)
    dealt = [grant.worker for grant in decided.grants]
    assert len(dealt) == len(set(dealt))
    for each in demands:
        got = Counter(grant.role for grant in decided.grants if grant.experiment == each.experiment)
        assert each.experiment in decided.waiting or all(got[role] >= 1 for role in MINIMUM)
        assert not got or all(got[role] >= 1 for role in MINIMUM)
        assert all(got[role] <= each.wanted[role] for role in got), "more than it wants"


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
