"""The registry: one incarnation per worker, and dead, stuck and well told apart."""

from __future__ import annotations

import re

import pytest

from remuda.coordinator.events import Received
from remuda.coordinator.registry import Registry, Worker
from remuda.coordinator.settings import Limits
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.tests.keys import somebody_for
from remuda.wire.messages import PROTOCOL_VERSION, Beat, Phase, Register

UUID = "00000000-0000-4000-8000-000000000001"
LIMITS = Limits(beat_interval_s=1.0, lost_after_s=5.0, stuck_after_s=20.0)


def register(incarnation: int) -> tuple[Register, bytes]:
    message = Register(UUID, incarnation, "collector", "here", 42, PROTOCOL_VERSION, "0.1")
    return message, f"{UUID}:{incarnation}".encode()


def admitted(registry: Registry, incarnation: int = 1, now_s: float = 0.0) -> Worker:
    worker = registry.admit(*register(incarnation), now_s).worker
    assert worker is not None
    return worker


def beat(registry: Registry, worker: Worker, progress: int, now_s: float, phase: Phase = "working") -> bool:
    worker.last_message_s = now_s
    return registry.beat(worker, Beat(progress, "busy with it", worker.lease, phase=phase), now_s)


def test_an_older_incarnation_is_refused_and_told_why() -> None:
    registry = Registry(LIMITS)
    admitted(registry, 2)
    admission = registry.admit(*register(1), 1.0)
    assert admission.worker is None
    assert admission.refusal is not None
    assert "already here as incarnation 2 (pid 42 on here)" in admission.refusal


def test_a_large_herd_beats_less_often_and_is_forgiven_longer_silences() -> None:
    registry = Registry(LIMITS)
    for number in range(1_000):
        uuid = f"00000000-0000-4000-8000-{number:012x}"
        message = Register(uuid, 1, "collector", "here", number, PROTOCOL_VERSION, "0.1")
        registry.admit(message, f"{uuid}:1".encode(), 0.0)
        assert (number + 1) / registry.beat_interval_s < 200.1
        assert registry.beat_interval_s == LIMITS.beat_interval_s or number >= 200
    assert registry.beat_interval_s == 5.0
    assert registry.lost(9.0) == []
    assert len(registry.lost(9.1)) == 1_000


def test_beats_without_progress_mean_stuck_and_are_named_once() -> None:
    registry = Registry(LIMITS)
    worker = admitted(registry)
    worker.lease = 1
    for second in range(1, 30):
        beat(registry, worker, 7 if second > 3 else second, float(second))
    assert registry.newly_stuck(25.0) == [worker]
    assert worker.state == "stuck"
    assert registry.newly_stuck(26.0) == []
    assert registry.lost(29.5) == []
    assert beat(registry, worker, 8, 30.0)
    assert registry.find(UUID) is worker
    assert not worker.stuck


def test_a_worker_that_waits_or_has_no_work_is_never_stuck() -> None:
    registry = Registry(LIMITS)
    worker = admitted(registry)
    beat(registry, worker, 0, 100.0)
    assert registry.newly_stuck(100.0) == []
    worker.lease = 1
    beat(registry, worker, 0, 200.0, phase="waiting")
    assert registry.newly_stuck(210.0) == []


def test_who_is_given_work_is_stuck_and_hopeless_after_the_limits_however_late_it_would_be_lost() -> None:
    registry = Registry(Limits(lost_after_s=100.0, stuck_after_s=5.0, hopeless_after_s=20.0))
    worker = admitted(registry)
    registry.give(worker, 1, {"preparing": 50.0}, 1.0)
    for second in range(1, 5):
        beat(registry, worker, 0, float(second), phase="preparing")
        assert registry.newly_stuck(float(second)) == []
    for second in range(5, 10):
        beat(registry, worker, 0, float(second))
        assert registry.newly_stuck(float(second)) == []
    assert registry.newly_stuck(10.5) == [worker]
    assert registry.hopeless(24.0) == []
    assert registry.hopeless(25.5) == [worker]


LONGEST_S: dict[Phase, float] = {"preparing": 600.0, "saving": 900.0}


def beats_for(registry: Registry, worker: Worker, seconds: int, phase: Phase, begun_s: float = 0.0) -> float:
    """A beat a second, without progress; what is looked for meanwhile is not found. Returns when that ended."""
    for second in range(seconds):
        now_s = begun_s + second
        beat(registry, worker, 0, now_s, phase=phase)
        assert registry.lost(now_s) == registry.newly_stuck(now_s) == registry.hopeless(now_s) == []
        assert registry.overdue(now_s) == []
    return begun_s + seconds


@pytest.mark.parametrize("phase", ["preparing", "saving"])
def test_what_a_run_has_a_limit_of_its_own_for_is_not_stuck_before_that(phase: Phase) -> None:
    registry = Registry(LIMITS)
    worker = admitted(registry)
    registry.give(worker, 1, LONGEST_S, 0.0)
    now_s = beats_for(registry, worker, int(LONGEST_S[phase]), phase)
    assert worker.state == "busy"
    beat(registry, worker, 0, now_s + 2.0, phase=phase)
    assert registry.overdue(now_s + 2.0) == [(worker, LONGEST_S[phase])]
    assert registry.newly_stuck(now_s + 2.0) == []


def test_whoever_goes_on_to_something_else_has_its_time_from_then_on() -> None:
    registry = Registry(LIMITS)
    worker = admitted(registry)
    registry.give(worker, 1, LONGEST_S, 0.0)
    now_s = beats_for(registry, worker, 500, "preparing")
    now_s = beats_for(registry, worker, 19, "working", now_s)
    now_s = beats_for(registry, worker, 800, "saving", now_s)
    now_s = beats_for(registry, worker, 19, "working", now_s)
    beat(registry, worker, 0, now_s + 5.0, phase="working")
    assert registry.newly_stuck(now_s + 5.0) == [worker]


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


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        (["last_after_s=3"], "unknown limit 'last_after_s=3'; known: beat_interval_s, lost_after_s"),
        (["lost_after_s=soon"], "'lost_after_s=soon': expected a positive number"),
        (["lost_after_s=-1"], "expected a positive number of seconds"),
        (["lost_after_s=nan"], "expected a positive number of seconds"),
        (["lost_after_s=1"], "lost_after_s=1: expected at least two heartbeats"),
        (["hopeless_after_s=30"], "hopeless_after_s=30: expected at least stuck_after_s"),
    ],
)
def test_limits_that_make_no_sense_are_refused(settings: list[str], wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(wrong)):
        Limits.of(settings)


def test_limits_are_given_by_name() -> None:
    assert Limits.of([]) == Limits()
    assert Limits.of(["stuck_after_s=90", "hopeless_after_s=600"]) == Limits(stuck_after_s=90.0, hopeless_after_s=600.0)
