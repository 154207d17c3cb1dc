"""A run whose environment steps are used up ends once its learner has done what buffer.samples_per_insert asks for; in
bounded time, and not where somebody waits, the learner is gone, or nothing says how much is asked for."""

from __future__ import annotations

import pytest

from remuda.coordinator.experiment.ending import REPLACEMENT_S, STAGE_LONGEST_S
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import STEP_S, DelayingWorld, Worker, World
from remuda.wire.messages import ChunkReady, ExperimentStatus, StopExperiment

MIN_ROWS, BATCH_SIZE = 200, 16
BUDGET = 1_500
BUFFER: dict[str, object] = {"capacity": 1_000, "min_rows": MIN_ROWS, "samples_per_insert": 4.0}


def at_its_end(*, per_insert: float | None = 4.0, **stop: object) -> tuple[World, Worker]:
    """A run that has just used up its steps, its learner far behind; and that learner."""
    world = World(config(buffer={**BUFFER, "samples_per_insert": per_insert}, stop={"max_env_steps": BUDGET, **stop}))
    world.updates_per_step = 1
    world.herd(collectors=2)
    world.submit()
    world.until(lambda: world.experiment().state == "stopping")
    [learner] = world.of("learner")
    return world, learner


def ended(world: World) -> tuple[ExperimentStatus, float]:
    """How it came out, and how long that took from now."""
    began_s = world.now_s
    world.run(2 * sum(STAGE_LONGEST_S.values()))
    return world.experiment(), world.now_s - began_s


def asked(world: World, per_insert: float = 4.0) -> int:
    """Updates, for all rows that came in after the warm-up."""
    rows = sum(meta.rows for chunk, meta in world.written.items() if chunk in world.accepted)
    return int(per_insert * (rows - MIN_ROWS) // BATCH_SIZE)


def owed_at_the_end(world: World) -> list[str]:
    return world.logged("were done, and buffer.samples_per_insert")


@pytest.mark.parametrize("coordinator_dies", [False, True])
def test_what_is_owed_is_done_and_no_more(coordinator_dies: bool) -> None:
    world, _ = at_its_end()
    [said] = world.logged("the learner catches up: ")
    assert int(said.split()[-1]) > 50
    if coordinator_dies:
        world.steps(10)
        world.crash()
    status, took_s = ended(world)
    assert (status.state, status.reason) == ("finished", "max_env_steps")
    again = 4 * coordinator_dies  # a request that the coordinator had answered may be answered again
    assert asked(world) <= status.train_iter <= asked(world) + again
    assert owed_at_the_end(world) == []
    assert max(world.records) == status.train_iter, "the last checkpoint is of the last update"
    assert status.train_iter in world.rewards, "and it is evaluated"
    assert took_s < STAGE_LONGEST_S["draining"]
    assert status.env_step == world.unique_env_steps()


@pytest.mark.parametrize("now", [False, True])
def test_who_asks_the_run_to_end_does_not_wait_for_it(now: bool) -> None:
    world, _ = at_its_end()
    world.ask(StopExperiment(world.experiment().id, now=now))
    status, took_s = ended(world)
    assert took_s < 40 * STEP_S
    owed = asked(world) - status.train_iter
    assert owed > 50
    assert owed_at_the_end(world) == [
        f"{owed} updates are owed: {status.train_iter} were done, and buffer.samples_per_insert 4 asks for "
        f"{asked(world)}"
    ]


def test_a_learner_that_dies_is_not_waited_for() -> None:
    world, learner = at_its_end()
    world.kill(learner)
    world.add("learner", 7)
    status, took_s = ended(world)
    assert status.state == "finished"
    assert took_s < 2 * world.limits.lost_after_s
    assert len(owed_at_the_end(world)) == 1
    assert len(world.logged("joins as learner")) == 1


@pytest.mark.parametrize("another_comes", [False, True])
def test_steps_that_are_used_up_while_the_learner_is_away_wait_a_little_for_another(another_comes: bool) -> None:
    warm_up = BUDGET - 200
    world = World(config(buffer={**BUFFER, "capacity": 2_000, "min_rows": warm_up}, stop={"max_env_steps": BUDGET}))
    world.updates_per_step = 1
    world.herd(collectors=2)
    world.submit()
    world.step()
    while world.experiment().env_step < warm_up - 50:
        world.step()
    [learner] = world.of("learner")
    learner.leave()
    world.kill(learner)
    for _ in range(int(0.9 * REPLACEMENT_S / STEP_S)):
        world.step()
    assert world.experiment().env_step >= BUDGET
    assert world.experiment().waiting_for == "waits for 1 learner (0 free)"
    if another_comes:
        world.add("learner", 7)
    status, took_s = ended(world)
    assert (status.state, status.reason) == ("finished", "max_env_steps")
    assert took_s < STAGE_LONGEST_S["draining"]
    assert (status.train_iter > 0, len(owed_at_the_end(world))) == (another_comes, not another_comes)


def test_a_learner_that_comes_no_further_is_waited_for_a_minute() -> None:
    world, _ = at_its_end()
    world.updates_per_step = 0
    status, took_s = ended(world)
    assert status.state == "finished"
    assert took_s == pytest.approx(STAGE_LONGEST_S["draining"], abs=20 * STEP_S)
    assert len(owed_at_the_end(world)) == 1
    assert max(world.records) == status.train_iter


class LateWorld(DelayingWorld):
    """A world in which chunks are announced late."""

    delayed = ChunkReady


def preempted(budget: int) -> World:
    """A run that has let go for another run, and counted its last chunks meanwhile."""
    world = LateWorld(config(buffer=BUFFER, preemptible=True, stop={"max_env_steps": budget}))
    world.started().until_env_step(800)
    world.config, world.held = config(stop={"max_env_steps": 10**6}), []
    world.submit("urgent", priority=5)
    world.until(lambda: world.logged("hands in and gives all workers back") != [])
    assert world.experiment(0).env_step < budget
    held, world.held = world.held, None
    for peer, envelope in held:
        world.to_coordinator(peer, envelope)
    world.until(lambda: world.experiment(1).state == "running")
    return world


def test_a_run_whose_last_steps_come_while_it_gives_way_catches_up_later() -> None:
    budget = preempted(9_000).experiment(0).env_step
    world = preempted(budget)
    until_s = world.now_s + 2 * REPLACEMENT_S
    world.until(lambda: world.now_s > until_s)
    waiting = world.experiment(0)
    assert (waiting.state, waiting.env_step) == ("starting", budget)
    assert "preempted by urgent" in (waiting.waiting_for or "")
    world.ask(StopExperiment(world.experiment(1).id))
    world.run()
    status = world.experiment(0)
    assert (status.state, status.reason, status.env_step) == ("finished", "max_env_steps", budget)
    assert status.train_iter > waiting.train_iter
    assert not any("are owed" in text for run, text in world.said if run == status.id)
