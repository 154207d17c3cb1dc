"""A coordinator that ends takes the unfinished work of its workers, and nobody new."""

from __future__ import annotations

from remuda.coordinator.events import ShutdownRequested
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import LearnerWork, World


def shut_down(world: World) -> None:
    world.apply(world.coordinator.handle(ShutdownRequested("test"), world.now_s))


def test_workers_that_come_back_with_a_lease_are_let_in_and_what_they_have_counts() -> None:
    """It was killed, started again, and told to end before its workers had come back."""
    world = World(config(stop={"max_env_steps": 10**9}))
    world.herd(collectors=2)
    world.submit()
    for _ in range(200):
        world.step()
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


def test_a_worker_without_a_lease_is_refused() -> None:
    world = World(config(stop={"max_env_steps": 10**9}))
    world.herd(collectors=2)
    world.submit()
    for _ in range(60):
        world.step()
    shut_down(world)
    late = world.add("collector", 7)
    lying = world.add("collector", 8)
    lying.lease = next(worker.lease for worker in world.workers.values() if worker.role == "learner")
    lying.renew()
    for _ in range(5):
        world.step()
    assert (late.refused, lying.refused) == ("closing", "closing")
