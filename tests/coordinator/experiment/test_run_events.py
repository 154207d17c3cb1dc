"""What the time series is told of: who joins and goes and why, with the counters of that moment, once."""

from __future__ import annotations

from remuda.coordinator.events import HeldUp
from remuda.coordinator.limits import Hold
from remuda.logbook.episode_reports import EvaluationReport
from remuda.logbook.reports import EventReport
from remuda.tests.coordinator.experiment.test_failures import fail, running
from remuda.tests.coordinator.simulation import World
from remuda.tests.coordinator.test_state import finished


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


def test_evaluations_say_which_is_the_best_and_when_it_was_saved() -> None:
    world = running()
    finished(world)
    reports = [report for report in world.reports if isinstance(report, EvaluationReport)]
    best = [report.train_iter for report in reports if report.best]
    assert best == [train_iter for train_iter, (_, is_best) in sorted(world.rewards.items()) if is_best]
    assert [report.wall_s for report in reports] == [world.records[report.train_iter].wall_s for report in reports]
