"""Workers whose work fails: told of with a count, free again after a rest, and five in a row end the run."""

from __future__ import annotations

import pytest

from remuda.coordinator.experiment.experiment import Experiment
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import Worker, World
from remuda.tests.coordinator.test_state import finished
from remuda.wire.messages import Bye, WorkerFailed


def fail(worker: Worker) -> None:
    """As a worker does whose user code has raised: it tells, then lets go."""
    worker.say(WorkerFailed(worker.lease, "RuntimeError: the floor gave way", "Traceback: in step, my_envs.py"))
    worker.drained()


def running(collectors: int = 2, max_env_steps: int = 3_000) -> World:
    world = World(config(collector={"count": collectors, "chunk_env_steps": 64}, stop={"max_env_steps": max_env_steps}))
    world.herd(collectors=collectors)
    world.submit()
    world.step()
    while world.experiment().env_step < 300:
        world.step()
    return world


def unproductive(world: World, worker: Worker) -> None:
    """From now on whatever it is given comes to nothing; what it had collected is counted."""
    worker.hung = True
    for _ in range(5):
        world.step()


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
    assert len(told(world, "5th failure of collector")) == 1


def of(world: World, role: str) -> list[Worker]:
    return [worker for worker in world.workers.values() if worker.role == role]


def told(world: World, part: str) -> list[str]:
    return [text for _, text in world.said if part in text]


@pytest.mark.parametrize("role", ["collector", "evaluator", "learner"])
def test_a_worker_that_failed_serves_again_in_the_same_incarnation(role: str) -> None:
    world = running()
    victim = of(world, role)[0]
    lease = victim.lease
    fail(victim)
    finished(world)
    assert victim.alive
    assert victim.incarnation == 1
    assert len(victim.assignments) == 2
    assert victim.assignments[0] == lease
    [text] = told(world, "failure of")
    assert text.startswith(f"1st failure of {role} {victim.uuid}: RuntimeError: the floor gave way")
    assert "my_envs.py" in text


def test_failures_are_counted_by_worker() -> None:
    world = running()
    first, second = of(world, "collector")
    for victim in (first, second, first):
        fail(victim)
        before = world.experiment().env_step
        while not (victim.lease and world.experiment().env_step > before):
            world.step()
    finished(world)
    counted = [text.split(":")[0] for text in told(world, "failure of")]
    assert counted == [
        f"1st failure of collector {first.uuid}",
        f"1st failure of collector {second.uuid}",
        f"2nd failure of collector {first.uuid}",
    ]


def test_one_that_always_fails_rests_longer_each_time_and_ends_the_run_at_the_fifth() -> None:
    world = running(collectors=1)
    [victim] = of(world, "collector")
    unproductive(world, victim)
    assert [rest_s(world, victim) for _ in range(4)] == [1, 2, 4, 8]
    fails_for_the_fifth_time(world, victim)
    assert all(worker.alive and not worker.lease for worker in world.workers.values())


def test_another_worker_takes_its_place_at_once() -> None:
    """Only the one that failed rests."""
    world = running(collectors=1)
    world.add("collector", 7)
    for _ in range(5):
        world.step()
    victim = next(w for w in of(world, "collector") if w.lease)
    other = next(w for w in of(world, "collector") if not w.lease)
    fail(victim)
    failed_s = world.now_s
    while not other.lease:
        world.step()
    assert world.now_s - failed_s < 0.5, "before the other one has rested"
    assert not victim.lease
    finished(world)


def test_one_bad_worker_among_good_ones_rests_longer_each_time_and_ends_nothing() -> None:
    """Others' work wipes the record of the experiment, and not its own."""
    world = running(collectors=2, max_env_steps=25_000)
    victim = of(world, "collector")[0]
    unproductive(world, victim)
    assert [rest_s(world, victim) for _ in range(5)] == [1, 2, 4, 8, 16]
    assert world.experiment().state == "running"
    world.kill(victim)
    finished(world)


def test_many_that_fail_at_the_same_moment_do_not_end_the_run_at_once() -> None:
    """The cause may pass within seconds, as that of a file system that hiccups does."""
    world = running(collectors=8)
    for worker in of(world, "collector"):
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
    for worker in of(world, "collector"):
        unproductive(world, worker)
    began_s = world.now_s
    while not world.experiment().reason:
        for worker in of(world, "collector"):
            if worker.lease:
                fail(worker)
        world.step()
    world.run()
    assert world.now_s - began_s < 10
    status = world.experiment()
    assert status.state == "failed"
    assert status.reason is not None
    assert "failures in a row; workers fail: RuntimeError: the floor gave way" in status.reason
    assert len(told(world, "failure of")) <= 16, "the log is not flooded"


@pytest.mark.parametrize("after", [1, 3])
def test_a_coordinator_that_is_started_again_forgets_no_failure(after: int) -> None:
    """Neither who rests for how long, nor how many in a row there were, nor how often each one failed."""
    world = running(collectors=1)
    [victim] = of(world, "collector")
    unproductive(world, victim)
    assert [rest_s(world, victim, crash=number == after) for number in range(4)] == [1, 2, 4, 8]
    fails_for_the_fifth_time(world, victim)


def test_progress_in_between_wipes_the_record() -> None:
    world = running(collectors=1)
    [victim] = of(world, "collector")
    for _ in range(7):
        fail(victim)
        before = world.experiment().env_step
        while not (victim.lease and world.experiment().env_step > before):
            world.step()
    finished(world)
    assert len(told(world, "7th failure of collector")) == 1


def test_a_worker_in_doubt_of_itself_leaves_and_its_next_incarnation_serves() -> None:
    world = running()
    victim = of(world, "collector")[0]
    victim.say(WorkerFailed(victim.lease, "MemoryError: ", "Traceback: in step"))
    victim.say(Bye("it failed"))
    victim.work = None
    for _ in range(10):
        world.step()
    again = world.restart(victim)
    finished(world)
    assert len(again.assignments) == 1
    assert told(world, "is gone: it left (it failed)")


def test_another_experiment_of_the_herd_goes_on_undisturbed() -> None:
    world = World(config(collector={"count": 1, "chunk_env_steps": 64}, stop={"max_env_steps": 15_000}))
    world.herd(collectors=2, evaluators=2, learners=2)
    world.submit("good")
    world.submit("bad")
    while not all(worker.lease for worker in world.workers.values()):
        world.step()
    bad = next(e for e in world.coordinator.experiments if e.identity.name == "bad")
    assert isinstance(bad, Experiment)
    [victim] = [w for w in of(world, "collector") if w.lease in bad.lease_numbers]
    unproductive(world, victim)
    for _ in range(2_000):
        if victim.lease:
            fail(victim)
        world.step()
        if bad.over:
            break
    world.run(3_000)
    assert {e.identity.name: e.state for e in world.coordinator.experiments} == {"good": "finished", "bad": "failed"}
    of_good = [w for w in world.workers.values() if w is not victim and len(w.assignments) == 1]
    assert len(of_good) >= 3, "nobody of the good one had to begin again"


@pytest.mark.parametrize("when", ["running", "stopping"])
def test_a_learner_that_has_diverged_fails_the_run_at_once(when: str) -> None:
    """Also where something else was ending it: its last checkpoint is the one from before."""
    world = running(collectors=1)
    [learner] = of(world, "learner")
    if when == "stopping":
        while world.experiment().state != "stopping":
            world.step()
    learner.say(WorkerFailed(learner.lease, "DivergedError: training has diverged", "Traceback", hopeless=True))
    learner.drained()
    world.run(120.0)
    status = world.experiment()
    assert (status.state, status.reason) == ("failed", "DivergedError: training has diverged")
    assert len(learner.assignments) == 1, "nobody is to try again"
