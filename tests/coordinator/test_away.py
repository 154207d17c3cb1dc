"""A coordinator that did not listen for a while, since its process stood still, takes nobody for dead or stuck."""

from __future__ import annotations

import pytest

from remuda.coordinator.events import Received
from remuda.coordinator.limits import Limits
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.tests.keys import somebody_for
from remuda.wire.messages import Beat


def at_work(limits: Limits) -> World:
    world = World(config(stop={"max_env_steps": 10**9}), limits=limits).started(collectors=4)
    world.steps(100)
    assert world.experiment().state == "running"
    return world


@pytest.mark.parametrize("away_s", [4.0, 15.0, 29.0, 200.0])
def test_the_clock_is_looked_at_before_all_that_was_said_meanwhile_is_heard(away_s: float) -> None:
    """It hears so many messages a turn, and of a large herd more are waiting."""
    world = at_work(Limits())
    leases = [worker.lease for worker in world.workers.values()]
    world.now_s += away_s
    world.tick()
    world.steps(100)
    assert not any("lost" in text or "stuck" in text for _, text in world.said)
    assert [worker.lease for worker in world.workers.values()] == leases
    assert all(worker.forgotten == 0 for worker in world.workers.values())


def test_who_is_heard_before_that_is_not_heard_in_the_future() -> None:
    world = at_work(Limits())
    for worker in world.workers.values():
        heard = worker.channel.post(Beat(1, "working", worker.lease), world.now_s)
        world.coordinator.handle(Received(worker.peer, heard, somebody_for(heard.message)), world.now_s + 15.0)
    world.now_s += 15.0
    world.tick()
    assert [worker.beat_age_s for worker in world.status().workers] == [0.0] * len(world.workers)


def test_who_died_meanwhile_is_lost_after_the_usual_time() -> None:
    world = at_work(Limits())
    died = world.of("collector")[0]
    world.kill(died)
    world.now_s += 15.0
    world.tick()
    back_s = world.now_s
    while not any("is lost" in text for _, text in world.said):
        world.step()
    assert world.now_s - back_s == pytest.approx(Limits().lost_after_s, abs=1.0)
