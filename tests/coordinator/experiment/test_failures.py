"""Workers whose work fails: told of with a count, free again after a rest, and five in a row end the run."""

from __future__ import annotations

import pytest

from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import Worker, World
from remuda.tests.coordinator.test_state import finished
from remuda.wire.messages import WorkerFailed


def fail(worker: Worker) -> None:
    """As a worker does whose user code has raised: it tells, then lets go."""
    worker.say(WorkerFailed(worker.lease, "RuntimeError: the floor gave way", "Traceback: in step, my_envs.py"))
    worker.drained()


def running(collectors: int = 2, max_env_steps: int = 3_000) -> World:
    world = World(
        config(collector={"count": collectors, "chunk_env_steps": 64}, stop={"max_env_steps": max_env_steps})
    ).started(collectors=collectors)
    world.until_env_step(300)
    return world


def unproductive(world: World, worker: Worker) -> None:
    """From now on whatever it is given comes to nothing; what it had collected is counted."""
    worker.hung = True
    world.steps(5)


def rest_s(world: World, worker: Worker, *, crash: bool = False) -> int:
    """It fails; after how many seconds it is taken again. The coordinator may crash once it knows it."""
    fail(worker)
    failed_s = world.now_s
    if crash:
        world.step()
        world.crash()
    while not worker.lease:
        world.step()
    return round(world.now_s - failed_s)


def fails_for_the_fifth_time(world: World, worker: Worker) -> None:
    """That is the end of the run, which says of what, and how often it was."""
    fail(worker)
    world.run()
    status = world.experiment()
    assert status.state == "failed"
    assert status.reason is not None
    assert "5 failures in a row; workers fail: RuntimeError: the floor gave way" in status.reason
    assert len(world.logged("5th failure of collector")) == 1


@pytest.mark.parametrize("role", ["collector", "evaluator", "learner"])
def test_a_worker_that_failed_serves_again_in_the_same_incarnation(role: str) -> None:
    world = running()
    victim = world.of(role)[0]
    lease = victim.lease
    fail(victim)
    finished(world)
    assert victim.alive
    assert victim.incarnation == 1
    assert len(victim.assignments) == 2
    assert victim.assignments[0] == lease
    [text] = world.logged("failure of")
    assert text.startswith(f"1st failure of {role} {victim.uuid}: RuntimeError: the floor gave way")
    assert "my_envs.py" in text


def test_many_that_fail_at_the_same_moment_do_not_end_the_run_at_once() -> None:
    """The cause may pass within seconds, as that of a file system that hiccups does."""
    world = running(collectors=8)
    for worker in world.of("collector"):
        fail(worker)
    world.step()
    world.step()
    status = world.experiment()
    assert status.state == "running"
    assert status.waiting_for is not None
    assert "takes no workers for 7 s: 8 failures in a row" in status.waiting_for
    failed_s, before = world.now_s, status.env_step
    while world.experiment().env_step == before:
        world.step()
    assert 6 < world.now_s - failed_s < 8
    finished(world)


def test_where_all_fail_all_the_time_the_run_ends_within_seconds() -> None:
    world = running(collectors=8)
    for worker in world.of("collector"):
        unproductive(world, worker)
    began_s = world.now_s
    while not world.experiment().reason:
        for worker in world.of("collector"):
            if worker.lease:
                fail(worker)
        world.step()
    world.run()
    assert world.now_s - began_s < 10
    status = world.experiment()
    assert status.state == "failed"
    assert status.reason is not None
    assert "failures in a row; workers fail: RuntimeError: the floor gave way" in status.reason
    assert len(world.logged("failure of")) <= 16, "the log is not flooded"


@pytest.mark.parametrize("after", [1, 3])
def test_a_coordinator_that_is_started_again_forgets_no_failure(after: int) -> None:
    """Neither who rests for how long, nor how many in a row there were, nor how often each one failed."""
    world = running(collectors=1)
    [victim] = world.of("collector")
    unproductive(world, victim)
    assert [rest_s(world, victim, crash=number == after) for number in range(4)] == [1, 2, 4, 8]
    fails_for_the_fifth_time(world, victim)


@pytest.mark.parametrize("when", ["running", "stopping"])
def test_a_learner_that_has_diverged_fails_the_run_at_once(when: str) -> None:
    """Also where something else was ending it: its last checkpoint is the one from before."""
    world = running(collectors=1)
    [learner] = world.of("learner")
    if when == "stopping":
        world.until(lambda: world.experiment().state == "stopping")
    learner.say(WorkerFailed(learner.lease, "DivergedError: training has diverged", "Traceback", hopeless=True))
    learner.drained()
    world.run(120.0)
    status = world.experiment()
    assert (status.state, status.reason) == ("failed", "DivergedError: training has diverged")
    assert len(learner.assignments) == 1, "nobody is to try again"
