"""A coordinator that hands over saves what was learned and ends; its next start goes on as if nothing had happened."""

from __future__ import annotations

from remuda.coordinator.events import HandoverRequested
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import LearnerWork, World
from remuda.wire.messages import StopExperiment

ENDLESS = {"max_env_steps": 10**9}
RARELY = {"interval_env_steps": 10**8}


def working_world() -> World:
    """A run that has learned something since its initial checkpoint, and saves nothing by itself."""
    world = World(config(stop=ENDLESS, checkpoint=RARELY, evaluator=RARELY))
    world.herd(collectors=2)
    world.submit()
    for _ in range(200):
        world.step()
    assert world.experiment().train_iter > 0
    assert set(world.records) == {0}
    return world


def hand_over(world: World) -> None:
    world.apply(world.coordinator.handle(HandoverRequested("the end of the walltime is near"), world.now_s))


def steps_until_exit(world: World) -> int:
    for number in range(600):
        if world.exited:
            return number
        world.step()
    raise AssertionError("it never ended")


def the_learner(world: World) -> LearnerWork:
    learner = next(worker.work for worker in world.workers.values() if worker.role == "learner")
    assert isinstance(learner, LearnerWork)
    return learner


def test_it_ends_once_the_learner_has_saved_and_the_run_is_not_stopped() -> None:
    world = working_world()
    learned = world.experiment().train_iter
    hand_over(world)
    assert not world.exited, "the learner has not saved yet"
    steps_until_exit(world)
    assert max(world.records) >= learned
    assert world.experiment().state == "running"
    assert [worker.refused for worker in world.workers.values()] == [None] * 4, "nobody was told to leave"


def test_the_next_start_goes_on_with_exact_counters() -> None:
    world = working_world()
    hand_over(world)
    steps_until_exit(world)
    before = world.experiment()
    world.exited = False
    world.crash()  # as far as workers can tell
    for _ in range(300):
        world.step()
    assert world.experiment().env_step > before.env_step
    world.ask(StopExperiment(world.experiment().id))
    world.run()
    after = world.experiment()
    assert (after.state, after.env_step) == ("stopped", world.unique_env_steps())


def test_without_a_learner_or_anything_new_there_is_nothing_to_wait_for() -> None:
    world = working_world()
    learner = next(worker for worker in world.workers.values() if worker.role == "learner")
    world.kill(learner)
    for _ in range(600):  # until it is noticed
        world.step()
    hand_over(world)
    assert steps_until_exit(world) <= 5


def test_without_any_run_it_ends_at_once() -> None:
    world = World(config())
    world.herd(collectors=1)
    hand_over(world)
    assert steps_until_exit(world) <= 5
