"""How the chunks of a run fared is counted exactly, whatever dies and whenever."""

from __future__ import annotations

import pytest

from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import Worker, World
from remuda.wire.messages import ChunkMeta, ChunkReady, LedgerCounts, PolicyRef


def busy_world(max_env_steps: int = 3_000) -> World:
    world = World(
        config(collector={"count": 2, "chunk_env_steps": 64}, stop={"max_env_steps": max_env_steps})
    ).started()
    while not (world.status().experiments and world.experiment().env_step):
        world.step()
    return world


def counts(world: World) -> LedgerCounts:
    found = world.experiment().ledger
    assert found is not None
    return found


def collector(world: World) -> Worker:
    return next(worker for worker in world.workers.values() if worker.role == "collector" and worker.lease)


def announce(world: World, worker: Worker, lease: int, meta: ChunkMeta) -> None:
    """In a message of its own, as one that is renewed after a restart."""
    while not worker.registered:
        world.step()
    worker.say(ChunkReady(lease, meta))
    for _ in range(100):  # five seconds: whoever was away is back
        world.step()


@pytest.mark.parametrize("crashes", [False, True])
def test_a_chunk_that_is_announced_again_is_a_repetition(crashes: bool) -> None:
    world = busy_world(max_env_steps=1_000_000)
    worker, lease = collector(world), collector(world).lease
    meta = world.write_chunk(worker, PolicyRef())
    announce(world, worker, lease, meta)
    for _ in range(3):
        before = counts(world).repeated
        announce(world, worker, lease, meta)
        now = counts(world)
        if crashes:
            assert now.repeated > before, "the collectors have repeated something, too"
            world.crash()
            assert counts(world) == now
        else:
            assert now.repeated == before + 1
    now = counts(world)
    assert (now.accepted, now.refused, now.lost_collectors) == (len(world.accepted), 0, 0)


@pytest.mark.parametrize("crashes", [False, True])
def test_a_collector_that_dies_has_lost_something_and_one_that_lets_go_has_not(crashes: bool) -> None:
    world = busy_world()
    world.kill(collector(world))
    while not counts(world).lost_collectors:
        world.step()
    if crashes:
        world.crash()
    assert counts(world).lost_collectors == 1
    world.run()
    last = world.experiment()
    assert last.state == "finished"
    assert counts(world).lost_collectors == 1, "the other has let go"
    if crashes:
        world.crash()
        assert world.experiment() == last
