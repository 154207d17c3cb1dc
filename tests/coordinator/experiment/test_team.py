"""Several policies in the state machine: they count the same steps, collect and end together; each learns by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from remuda.coordinator.effects import CloseRun, PolicyEffect, SendToLease
from remuda.coordinator.leases import Sender
from remuda.tests.coordinator.experiment.teams import AGENTS, World, counters_of, team_config
from remuda.wire.messages import CollectorReport, Drain, StopExperiment


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Any]:
    made: list[World] = []

    def make(**sections: Any) -> World:
        made.append(World(team_config(**sections), tmp_path))
        return made[-1]

    yield make
    for world in made:
        world.close()


def finished(world: World) -> None:
    world.run()
    status = world.team.status(world.now_s)
    assert (status.state, status.reason) == ("finished", "max_env_steps")
    assert world.env_steps[0] == world.env_steps[1] == status.env_step >= 2_000
    assert sum(world.written[chunk][0].env_steps for chunk in world.acknowledged) <= status.env_step
    assert world.workers == {}, "everybody has let go"


def test_a_run_with_two_policies_from_start_to_end(worlds: Any) -> None:
    world = worlds()
    world.herd()
    finished(world)
    assert world.env_steps == [world.written_env_steps()] * 2
    status = world.team.status(world.now_s)
    assert [one.name for one in status.policies] == list(AGENTS)
    assert all(one.train_iter > 10 for one in status.policies)
    assert status.train_iter == sum(one.train_iter for one in status.policies)
    for name in AGENTS:
        saved = world.checkpoints(name)
        assert saved[0].record.train_iter == 0
        assert saved[-1].record.env_step == status.env_step
        assert [step for step in world.effects if step.policy == name and isinstance(step.effect, CloseRun)]


def test_on_policy_collectors_wait_for_the_update_of_the_policy_that_needs_it(worlds: Any) -> None:
    """Both collectors collect one chunk, then the hares' policy is updated; nothing is collected by an older one."""
    world = worlds()
    world.herd()
    finished(world)
    assert set(world.lags["hare"]) == {0}
    hares = counters_of(world)[1]
    assert hares.train_iter == pytest.approx(len(world.written) / 2, abs=2), "a segment of each lane of both collectors"


@pytest.mark.parametrize("role", ["collector", "learner", "evaluator"])
def test_a_worker_that_is_killed_loses_nothing_that_was_acknowledged(worlds: Any, role: Any) -> None:
    world = worlds()
    world.herd()
    while world.env_steps[0] < 700:
        world.step()
    victim = world.of(role)[-1]
    world.kill(victim)
    world.step()
    if role == "learner":
        world.steps(10)
        before = world.env_steps
        world.steps(10)
        assert world.env_steps == before, "the others wait for it"
    world.join(role)
    finished(world)
    assert world.env_steps == [world.written_env_steps()] * 2


@pytest.mark.parametrize("at", [600])
def test_all_policies_are_at_the_same_task_over_a_killed_coordinator(worlds: Any, at: int | None) -> None:
    """Which begins by steps, and then once the evaluations of both have reached it."""
    schedule = [{"env_step": 600, "kwargs": {"size": 1}}, {"mean_return": 1.0, "kwargs": {"size": 2}}]
    world = worlds(env={**team_config().env.model_dump(), "schedule": schedule})
    world.herd()
    while world.env_steps[0] < (at or 0):
        world.step()
    if at is not None:
        world.crash()
    finished(world)
    curricula = [member.parts.commander.curriculum for member in world.team.members]
    assert [curriculum.number for curriculum in curricula] == [2, 2]
    assert curricula[0].state.since_env_step == curricula[1].state.since_env_step
    told = {asked.task.number: asked.task.kwargs_json for asked in world.played}
    assert told == {0: "", 1: '{"size": 1}', 2: '{"size": 2}'}
    assert {metas[0].task for metas in world.written.values()} == {0, 1, 2}
    for member in world.team.members:
        best = member.parts.commander.best
        assert best is not None
        assert best.record.task == curricula[0].name


@pytest.mark.parametrize("at", [0, 1_000])
def test_a_coordinator_that_is_killed_goes_on_with_all_policies_from_the_same_moment(worlds: Any, at: int) -> None:
    world = worlds()
    world.herd()
    while world.env_steps[0] < at:
        world.step()
    before = world.env_steps
    world.crash()
    assert world.env_steps[0] == world.env_steps[1] >= before[0]
    finished(world)
    assert world.env_steps == [world.written_env_steps()] * 2


def test_a_chunk_counts_for_all_policies_or_for_none(worlds: Any) -> None:
    world = worlds()
    world.herd()
    world.steps(5)
    worker = world.of("collector")[0]
    ready, sender = world.write_chunk(worker), Sender(worker.uuid, 1)
    (other,) = ready.others
    lies = [
        replace(ready, others=[]),
        replace(ready, others=[other, other]),
        replace(ready, others=[replace(other, env_steps=other.env_steps - 1)]),
        replace(ready, others=[replace(other, rows=other.rows + 1)]),
        replace(ready, others=[replace(other, chunk=replace(other.chunk, sequence=99))]),
    ]
    before = world.env_steps
    for lie in lies:
        assert world.team.refusal(lie, sender) is not None
    assert world.team.refusal(CollectorReport(worker.lease, 0, 0, 0, 0.0, 0.0, 0.0, policy_index=2), sender) is not None
    assert world.env_steps == before
    world.say(worker, ready)
    assert world.env_steps == [before[0] + ready.meta.env_steps] * 2


def test_payloads_that_nobody_has_announced_count_if_all_policies_have_theirs(worlds: Any) -> None:
    world = worlds()
    world.herd()
    world.steps(5)
    worker = world.of("collector")[0]
    ready = world.write_chunk(worker)
    before = world.env_steps
    world.do(world.team.adopt([ready.meta, *ready.others], world.now_s))
    assert world.env_steps == [before[0] + ready.meta.env_steps] * 2
    world.say(worker, ready)
    assert world.env_steps == [before[0] + ready.meta.env_steps] * 2, "its worker lives and announces it"


def self_play(keep: int) -> dict[str, Any]:
    return {
        "self_play": {"share": 0.5, "keep": keep},
        "checkpoint": {"interval_env_steps": 100, "keep": keep},
        "evaluator": {"count": 1, "episodes": 4, "interval_env_steps": 200},
    }


def newest(world: World, name: str, keep: int) -> list[str]:
    return list(dict.fromkeys(each.record.file for each in world.checkpoints(name)))[-keep:]


@pytest.mark.parametrize("keep", [3])
def test_in_self_play_collectors_are_told_the_newest_checkpoints_of_each_policy(worlds: Any, keep: int) -> None:
    """Those who join late, or whose coordinator was killed, as well."""
    world = worlds(**self_play(keep))
    world.herd()

    def told() -> bool:
        due = {place: newest(world, name, keep) for place, name in enumerate(AGENTS)}
        return all(collector.opponents == due for collector in world.of("collector"))

    while world.env_steps[0] < 600:
        world.step()
    assert told()
    assert all(len(newest(world, name, keep)) == keep for name in AGENTS)
    for collector in world.of("collector"):
        collector.opponents.clear()
    world.crash()
    assert told()
    world.kill(world.of("collector")[0])
    world.join("collector")
    assert told()
    finished(world)


@pytest.mark.parametrize("keep", [3])
def test_in_self_play_each_is_evaluated_against_the_checkpoints_before_those_that_play(worlds: Any, keep: int) -> None:
    """Which are there until that is done, though newer ones were saved meanwhile, and an evaluator is killed."""
    world = worlds(**self_play(keep))
    world.herd()
    while world.env_steps[0] < 600:
        world.step()
    world.kill(world.of("evaluator")[0])
    world.steps(20)
    world.join("evaluator")
    finished(world)
    saved = [newest(world, name, 1_000) for name in AGENTS]
    assert not any(asked.older for asked in world.played if asked.train_iter == 0), "nothing is older"
    for asked in world.played:
        files = [other.file for other in asked.others]
        files.insert(asked.policy_index, asked.checkpoint)
        before = [its[: its.index(file)][-keep:] for its, file in zip(saved, files, strict=True)]
        assert [[one.file for one in older] for older in asked.older] == (before if any(before) else [])
    assert any(len(older) == keep for asked in world.played for older in asked.older)


def test_returns_that_all_policies_have_reached_end_the_run(worlds: Any) -> None:
    world = worlds(stop={"max_env_steps": 100_000, "stop_value": 3.0})
    world.herd()
    while world.env_steps[0] < 1_000:
        world.step()
    assert world.team.state == "running"
    world.returns = 3.5
    world.run()
    status = world.team.status(world.now_s)
    assert (status.state, status.reason, status.last_return) == ("finished", "stop_value", 3.5)


def test_a_run_that_is_stopped_saves_all_policies(worlds: Any) -> None:
    world = worlds()
    world.herd()
    while world.env_steps[0] < 500:
        world.step()
    world.do(world.team.stop(now=True, explanation=StopExperiment.__name__, now_s=world.now_s))
    world.run()
    assert world.team.state == "stopped"
    for name, counters in zip(AGENTS, counters_of(world), strict=True):
        assert world.checkpoints(name)[-1].record.train_iter == counters.train_iter
        assert world.checkpoints(name)[-1].interrupted


def test_it_demands_a_learner_for_each_policy_and_everybody_else_once(worlds: Any) -> None:
    world = worlds()
    demand = world.team.demand(0.0)
    assert demand is not None
    assert demand.wanted == {"learner": 2, "collector": 2, "evaluator": 1, "reanalyzer": 0}
    assert demand.minimum == {"learner": 2, "collector": 1, "evaluator": 1, "reanalyzer": 0}
    world.join("learner")
    left = world.team.demand(0.0)
    assert left is not None
    assert left.wanted["learner"] == 1
    world.join("learner")
    assert not world.team.takes("learner")
    assert {worker.place for worker in world.of("learner")} == {0, 1}


def test_workers_that_are_shared_are_asked_once(worlds: Any) -> None:
    world = worlds()
    world.herd()
    world.step()
    steps = world.team.lend("collector", 1, "another")
    told = [step for step in steps if isinstance(step, SendToLease) and isinstance(step.message, Drain)]
    assert len(told) == 1
    assert all(isinstance(step, PolicyEffect) for step in steps if step not in told)
