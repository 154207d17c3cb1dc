"""A coordinator that ends takes the unfinished work of its workers, and nobody new."""

from __future__ import annotations

from remuda.coordinator.catalog import Catalog
from remuda.coordinator.effects import Effect, Exit, Send
from remuda.coordinator.events import HandoverRequested, Received, ShutdownRequested
from remuda.coordinator.journaling import Journaling
from remuda.coordinator.registry import Registry
from remuda.coordinator.settings import Limits
from remuda.coordinator.shutdown import HELD_UP_S, CoordinatorShutdown
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import CLIENT, LearnerWork, World
from remuda.tests.keys import somebody_for
from remuda.training.effects import LogLine
from remuda.wire.codec import Envelope
from remuda.wire.messages import Bye, Leave, Shutdown, StopExperiment

ENDLESS = {"max_env_steps": 10**9}
RARELY = {"interval_env_steps": 10**8}


def shut_down(world: World) -> None:
    world.apply(world.coordinator.handle(ShutdownRequested("test"), world.now_s))


def test_workers_that_come_back_with_a_lease_are_let_in_and_what_they_have_counts() -> None:
    """It was killed, started again, and told to end before its workers had come back."""
    world = World(config(stop={"max_env_steps": 10**9})).started()
    world.steps(200)
    learner = next(worker.work for worker in world.workers.values() if worker.role == "learner")
    assert isinstance(learner, LearnerWork)
    world.crash()
    shut_down(world)
    for _ in range(600):
        world.step()
        if world.exited:
            break
    assert world.exited
    assert [worker.refused for worker in world.workers.values()] == [None] * 4
    status = world.experiment()
    assert status.state == "stopped"
    assert status.env_step == world.unique_env_steps()
    assert max(world.records) == status.train_iter == learner.train_iter, "the last checkpoint has every update"


def test_each_step_of_the_end_follows_at_once_and_not_with_the_next_tick() -> None:
    world = World(config())
    workers = [world.add("collector", number) for number in range(2)]
    world.steps(5)

    def told(peer: bytes, envelope: Envelope) -> list[Effect]:
        return world.coordinator.handle(Received(peer, envelope, somebody_for(envelope.message)), world.now_s)

    sent = told(CLIENT, world.client.post(Shutdown("test"), world.now_s))
    farewells = [
        effect.peer for effect in sent if isinstance(effect, Send) and isinstance(effect.envelope.message, Leave)
    ]
    assert sorted(farewells) == sorted(worker.peer for worker in workers)
    first, last = (told(worker.peer, worker.channel.post(Bye("test"), world.now_s)) for worker in workers)
    assert Exit() not in first
    assert Exit() in last


def test_one_that_has_nothing_to_do_ends_by_itself_after_the_time_given() -> None:
    catalog = Catalog()
    shutdown = CoordinatorShutdown(catalog, Registry(Limits()), Journaling(catalog, "boot"), idle_end_s=60.0)
    assert shutdown.tick(1_000.0) == []
    assert shutdown.tick(1_060.0) == []
    [line] = shutdown.tick(1_060.1)
    assert isinstance(line, LogLine)
    assert line.text == "shutting down: there has been no run for 60 s"
    assert shutdown.tick(1_060.2) == []
    assert shutdown.tick(1_060.3) == [Exit()]


def test_a_worker_without_a_lease_is_refused() -> None:
    world = World(config(stop={"max_env_steps": 10**9})).started()
    world.steps(60)
    shut_down(world)
    late = world.add("collector", 7)
    lying = world.add("collector", 8)
    lying.lease = next(worker.lease for worker in world.workers.values() if worker.role == "learner")
    lying.renew()
    world.steps(5)
    assert (late.refused, lying.refused) == ("closing", "closing")


def test_a_run_whose_folder_was_being_made_is_stopped_too() -> None:
    world = World(config(stop={"max_env_steps": 10**9}))
    world.prepares_at_once = False
    world.herd(collectors=2)
    world.submit()
    world.until(lambda: bool(world.being_prepared))
    shut_down(world)
    [ready] = world.being_prepared
    world.apply(world.coordinator.handle(ready, world.now_s))
    world.until(lambda: world.exited)
    status = world.experiment()
    assert (status.state, status.env_step) == ("stopped", 0)


def test_a_folder_that_is_being_made_is_waited_for_but_not_without_end() -> None:
    world = World(config())
    world.prepares_at_once = False
    world.submit()
    world.until(lambda: bool(world.being_prepared))
    shut_down(world)
    begun_s = world.now_s
    world.until(lambda: world.exited)
    assert HELD_UP_S < world.now_s - begun_s < HELD_UP_S + 1.0


def working_world() -> World:
    """A run that has learned something since its initial checkpoint, and saves nothing by itself."""
    world = World(config(stop=ENDLESS, checkpoint=RARELY, evaluator=RARELY)).started()
    world.steps(200)
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


def test_the_next_start_goes_on_with_exact_counters() -> None:
    world = working_world()
    hand_over(world)
    steps_until_exit(world)
    before = world.experiment()
    world.exited = False
    world.crash()  # as far as workers can tell
    world.steps(300)
    assert world.experiment().env_step > before.env_step
    world.ask(StopExperiment(world.experiment().id))
    world.run()
    after = world.experiment()
    assert (after.state, after.env_step) == ("stopped", world.unique_env_steps())


def test_without_a_learner_or_anything_new_there_is_nothing_to_wait_for() -> None:
    world = working_world()
    learner = world.of("learner")[0]
    world.kill(learner)
    for _ in range(600):  # until it is noticed
        world.step()
    hand_over(world)
    assert steps_until_exit(world) <= 5
