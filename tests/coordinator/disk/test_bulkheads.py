"""What goes wrong with one run, its disk or a message ends or holds up that run, and no other."""

from __future__ import annotations

import re

import pytest

from remuda.coordinator.effects import Abandon, FindRoom
from remuda.coordinator.events import HeldUp, RunBroken, ShutdownRequested, Tick
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.settings import Hold
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.training.replay.accounting import ReplayAccounting
from remuda.wire.messages import ROLES, Done, StopExperiment


def two_runs() -> World:
    """Two experiments under way, each with workers of its own."""
    world = World(config(stop={"max_env_steps": 1_200})).started(collectors=4, evaluators=2, learners=2, name="sick")
    world.submit("well")
    while [experiment.state for experiment in world.coordinator.experiments] != ["running", "running"]:
        world.step()
    return world


def sick_of(world: World) -> Experiment:
    found = next(iter(world.coordinator.experiments))
    assert isinstance(found, Experiment)
    return found


def the_other_is_exact(world: World, said: str) -> None:
    """It ends by itself, and its workers and those of the sick one are free for others."""
    world.run()
    sick, well = world.status().experiments
    assert (sick.state, well.state) == ("failed", "finished")
    assert sick.reason is not None
    assert said in sick.reason
    assert well.env_step == world.unique_env_steps(well.id) >= 1_200
    assert all(worker.state == "idle" for worker in world.status().workers)


@pytest.mark.parametrize("method", ["accept", "reports", "snapshot"])
def test_an_error_inside_one_experiment_ends_it_alone(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a message, in a tick, and while it says what is to be journaled."""
    world = two_runs()
    abandoned: list[Abandon] = []
    world.noted = lambda effect: abandoned.append(effect) if isinstance(effect, Abandon) else None
    sick = sick_of(world).policies[0].replay
    real = getattr(ReplayAccounting, method)

    def fail(self: ReplayAccounting, *given: object, **named: object) -> object:
        if self is sick:
            raise OverflowError("a number beyond all bounds")
        return real(self, *given, **named)

    monkeypatch.setattr(ReplayAccounting, method, fail)
    the_other_is_exact(world, "OverflowError: a number beyond all bounds")
    assert [each.last.last.state for each in abandoned] == ["failed"]
    assert any("Traceback" in text for _, text in world.said)


def held_up(world: World, id: str, why: str | None) -> None:
    """The disk of this run takes nothing, or takes everything again; no worker bears a silent coordinator."""
    world.patience_s = 3.0
    world.lags = lambda experiment: why is not None and experiment == id
    hold = None if why is None else Hold(why, world.now_s + 600.0)
    world.happens(HeldUp(id, hold))


def for_seconds(world: World, seconds: float) -> None:
    end_s = world.now_s + seconds
    while world.now_s < end_s:
        world.step()


def test_a_run_that_is_held_up_waits_with_its_workers_while_the_other_ends_and_then_goes_on() -> None:
    world = two_runs()
    sick = sick_of(world)
    held_up(world, sick.identity.id, "its disk refuses: full")
    before = sick.policies[0].replay.ledger.env_step
    while world.experiment(1).state != "finished":
        world.step()
    for_seconds(world, 10.0)
    assert sick.policies[0].replay.ledger.env_step == before, "nothing was heard"
    status = world.experiment(0)
    assert status.state == "running"
    assert status.waiting_for is not None
    assert re.fullmatch(
        r"held up: its disk refuses: full; the run fails in 5\d\d s unless its disk takes writes before",
        status.waiting_for,
    )
    assert len(world.status().workers) == 8, "nobody was lost"
    held_up(world, sick.identity.id, None)
    world.run()
    for status in world.status().experiments:
        assert status.state == "finished"
        assert status.env_step == world.unique_env_steps(status.id)


def test_no_worker_is_lost_that_lives_when_the_coordinator_of_a_run_that_is_held_up_is_started_again() -> None:
    world = two_runs()
    sick = sick_of(world).identity.id
    held_up(world, sick, "its disk refuses: full")
    for_seconds(world, 5.0)
    world.holds[sick] = Hold("its disk refuses: full", world.now_s + 595.0, journals=True)
    world.crash()
    for_seconds(world, 2.0)
    assert "its disk refuses: full; the run fails in 59" in (world.experiment(0).waiting_for or "")
    held_up(world, sick, "its disk refuses: full")
    for_seconds(world, 20.0)
    assert [worker.refused for worker in world.workers.values()] == [None] * 8
    assert len(world.status().workers) == 8
    assert not world.logged("lost")
    held_up(world, sick, None)
    world.run()
    for status in world.status().experiments:
        assert (status.state, status.env_step) == ("finished", world.unique_env_steps(status.id))


def test_a_run_that_is_held_up_asks_for_nobody_until_its_disk_has_room_again() -> None:
    world = two_runs()
    sick = sick_of(world).identity.id
    while world.experiment(1).state != "finished":
        world.step()
        if sick not in world.coordinator.experiments.held_up and world.experiment(0).env_step:
            held_up(world, sick, "its disk refuses: full")
    for worker in list(world.workers.values()):
        world.kill(worker)
    for_seconds(world, 8.0)
    for role in ROLES[:3]:
        world.add(role, 100)
    for_seconds(world, 5.0)
    assert [worker.state for worker in world.status().workers] == ["idle"] * 3, "nobody stands with the sick run"
    world.submit("another")
    while len(world.status().experiments) < 3 or world.experiment(2).state != "running":
        world.step()
    another = world.experiment(2).id
    assert [worker.experiment for worker in world.status().workers] == [another] * 3
    held_up(world, sick, None)
    world.run()
    for status in world.status().experiments:
        assert (status.state, status.env_step) == ("finished", world.unique_env_steps(status.id))


def test_workers_that_lack_room_have_it_looked_for_while_the_journal_is_written_on() -> None:
    world = World(config(stop={"max_env_steps": 100_000})).started(collectors=1, name="sick")
    for_seconds(world, 1.0)
    sick = sick_of(world).identity.id
    sought: list[FindRoom] = []
    world.noted = lambda effect: sought.append(effect) if isinstance(effect, FindRoom) else None
    [collector] = world.of("collector")
    collector.lacks_bytes = 1_234
    for_seconds(world, 2.5)
    assert [(each.experiment, each.size_bytes) for each in sought] == [(sick, 1_234)] * len(sought)
    assert 2 <= len(sought) <= 3, "not at every beat"
    before, journaled = world.experiment(0).train_iter, world.journal[sick].snapshot
    world.happens(HeldUp(sick, Hold("its disk refuses: no room", world.now_s + 600.0, journals=True)))
    for_seconds(world, 2.5)
    assert len(sought) <= 3, "it is known to be held up"
    assert world.experiment(0).train_iter > before, "its other workers are heard"
    assert world.journal[sick].snapshot != journaled


def test_a_run_that_is_held_up_can_be_given_up_by_a_client() -> None:
    world = two_runs()
    sick = sick_of(world)
    held_up(world, sick.identity.id, "its disk does not answer")
    world.ask(StopExperiment("sick", now=True))
    while not any(isinstance(reply, Done) for reply in world.replies):
        world.step()
    assert sick.over
    the_other_is_exact(world, "a client asked to stop at once while it was held up")


def test_a_coordinator_that_ends_does_not_wait_for_a_disk_that_takes_nothing() -> None:
    world = two_runs()
    sick = sick_of(world)
    held_up(world, sick.identity.id, "its disk does not answer")
    world.apply(world.coordinator.handle(ShutdownRequested("SIGTERM"), world.now_s))
    end_s = world.now_s + 120.0
    while not world.exited and world.now_s < end_s:
        world.step()
    assert world.exited
    assert not sick.over, "the next coordinator takes it up"
    assert world.status().experiments[1].state == "stopped"
    world.apply(world.coordinator.handle(Tick(), world.now_s))


def test_a_run_that_cannot_be_written_fails_alone() -> None:
    world = two_runs()
    world.apply(world.coordinator.handle(RunBroken(sick_of(world).identity.id, "its disk refuses: EIO"), world.now_s))
    the_other_is_exact(world, "its disk refuses: EIO")
    assert any("has failed: its disk refuses: EIO" in text for _, text in world.said)
