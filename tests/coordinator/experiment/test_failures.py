"""Workers whose work fails: told of with a count, free again after a rest, and five in a row end the run."""

from __future__ import annotations

import pytest

from remuda.coordinator.events import HeldUp
from remuda.coordinator.settings import Hold
from remuda.logbook.reports import EventReport
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


def test_a_worker_that_failed_serves_again_in_the_same_incarnation() -> None:
    world, role = running(), "learner"
    victim = world.of("learner")[0]
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


def test_a_coordinator_that_is_started_again_forgets_no_failure() -> None:
    """Neither who rests for how long, nor how many in a row there were, nor how often each one failed."""
    world = running(collectors=1)
    [victim] = world.of("collector")
    unproductive(world, victim)
    assert [rest_s(world, victim, crash=number == 3) for number in range(4)] == [1, 2, 4, 8]
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


def events(world: World) -> list[EventReport]:
    return [report for report in world.reports if isinstance(report, EventReport)]


def kinds(world: World, worker: str) -> list[str]:
    return [report.kind for report in events(world) if report.worker == worker]


def test_workers_come_fail_die_and_go() -> None:
    world = running()
    failing, dying = world.of("collector")
    [learner] = world.of("learner")
    assert kinds(world, learner.uuid) == ["worker_joined"]
    fail(failing)
    world.kill(dying)
    finished(world)
    assert kinds(world, failing.uuid)[:3] == ["worker_joined", "worker_failed", "worker_left"]
    assert kinds(world, dying.uuid) == ["worker_joined", "worker_died"]
    assert kinds(world, learner.uuid) == ["worker_joined", "worker_left"]
    [failed] = [report for report in events(world) if report.kind == "worker_failed"]
    assert (failed.role, failed.what) == ("collector", "RuntimeError: the floor gave way")
    ends = [report for report in events(world) if report.kind == "run_ends"]
    assert len(ends) == 1
    assert "max_env_steps" in ends[0].what
    assert ends[0].env_step == world.experiment().env_step


def test_a_run_that_is_held_up_says_so_and_when_it_goes_on() -> None:
    world = running()
    id = world.experiment().id
    until_s = world.now_s + 598.0
    for hold in (Hold("its disk refuses: full", until_s), Hold("its disk refuses: still full", until_s), None):
        world.apply(world.coordinator.handle(HeldUp(id, hold), world.now_s))
    held = [(report.kind, report.what) for report in events(world) if report.kind in ("held_up", "goes_on")]
    assert held == [
        (
            "held_up",
            "is held up, and no other run is: its disk refuses: full; the run fails in 598 s unless its disk takes "
            "writes before",
        ),
        ("goes_on", "continues: its disk accepts writes again (before: its disk refuses: still full)"),
    ]
