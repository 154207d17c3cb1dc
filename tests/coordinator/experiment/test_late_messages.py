"""Whose run a late message is about is known for long, and not without end: leases are given out without end."""

from __future__ import annotations

from itertools import count

import pytest

from remuda.coordinator import assignments
from remuda.coordinator import effects as fx
from remuda.coordinator.events import Received
from remuda.coordinator.experiment import workers
from remuda.tests.coordinator.configs import config, short_config
from remuda.tests.coordinator.simulation import Worker, World
from remuda.tests.keys import somebody_for
from remuda.training.effects import LogLine
from remuda.wire.channel import Channel
from remuda.wire.messages import AnyMessage, WorkerFailed

KEPT = 12
SOMEBODY = count(1)


@pytest.fixture(autouse=True)
def few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "LEASES_KEPT", KEPT)


@pytest.fixture(autouse=True)
def deaths_end_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collectors die at once, again and again: that is not what these tests are about."""
    monkeypatch.setattr(workers, "FAILURES_IN_A_ROW", 10**6)


def said_by_somebody(world: World, message: AnyMessage, worker: Worker | None = None) -> list[fx.Effect]:
    """What a message leads to of a worker that is not registered any more, and that has said nothing before."""
    who = "somebody:1" if worker is None else f"{worker.uuid}:{worker.incarnation}"
    peer = f"{who}:gone:{next(SOMEBODY)}".encode()
    return world.coordinator.handle(
        Received(peer, Channel().post(message, world.now_s), somebody_for(message)), world.now_s
    )


def is_known(world: World, lease: int, worker: Worker | None = None) -> bool:
    """Whether this worker finds a run to tell of what happened under this lease, which is over."""
    return any(isinstance(e, LogLine) for e in said_by_somebody(world, WorkerFailed(lease, "gone", "nowhere"), worker))


def lease_again(world: World) -> int:
    """The collector dies and is started again; gives its new lease."""
    fresh = world.restart(world.of("collector")[0])
    end_s = world.now_s + 60.0
    while not fresh.lease:
        assert world.now_s < end_s, world.said[-3:]
        world.step()
    return fresh.lease


def busy_world() -> World:
    world = World(config(collector={"count": 1, "chunk_env_steps": 64})).started(collectors=1)
    while not (world.workers and world.of("collector")[0].lease):
        world.step()
    return world


def test_of_runs_that_are_over_the_newest_are_known() -> None:
    world = World(short_config())
    world.herd(collectors=2)
    newest = 0
    for number in range(15):
        world.submit(f"run {number}")
        world.step()
        world.run()
        newest = max(worker.assignments[-1] for worker in world.workers.values() if worker.assignments)
        known = [lease for lease in range(1, newest + 1) if is_known(world, lease)]
        assert len(known) < 2 * KEPT
        assert known == list(range(newest - len(known) + 1, newest + 1))
        assert len(known) >= min(KEPT, newest)
    assert newest > 4 * KEPT, "it has come to forgetting more than once"


@pytest.mark.parametrize("restarted", [False, True])
def test_of_a_run_that_goes_on_all_are_known_that_its_journal_has(restarted: bool) -> None:
    world = busy_world()
    over: list[tuple[int, Worker]] = []
    for _ in range(4 * KEPT):
        over.append((world.of("collector")[0].lease, world.of("collector")[0]))
        newest = lease_again(world)
    if restarted:
        world.crash()
    assert all(is_known(world, lease, worker) for lease, worker in over)
    assert not is_known(world, newest + 1, world.of("collector")[0])
