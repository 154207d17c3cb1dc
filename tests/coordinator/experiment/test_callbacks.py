"""Callbacks are told of each event, and what they decide counts once, whoever dies and whenever."""

from __future__ import annotations

import random
from typing import cast

import msgspec
import pytest

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.experiment.policy import CALLBACKS_LONGEST_S
from remuda.logbook.reports import CallbackReport
from remuda.tests.coordinator.configs import short_config
from remuda.tests.coordinator.simulation import Faults, LearnerWork, World
from remuda.tests.faults.sizes import LONG
from remuda.training.snapshot import CallbacksSnapshot
from remuda.wire.messages import CallbackAnswer, CallbacksDecided, ExperimentStatus, Verdict

EVALUATIONS = 3


def configured(evaluations: int = EVALUATIONS, name: str = "Notes", **sections: object) -> ExperimentConfig:
    kwargs = {"evaluations": evaluations} if name == "Notes" else {"after": evaluations}
    callbacks = [{"make": f"remuda.tests.callbacks:{name}", "kwargs": kwargs}]
    return short_config(callbacks=callbacks, **{"stop": {"max_env_steps": 5_000}, **sections})


def world_of(config: ExperimentConfig, seed: int = 0, faults: Faults | None = None) -> World:
    return World(config, seed=seed, faults=faults).started()


def journaled(world: World) -> CallbacksSnapshot:
    (run,) = world.journal.values()
    return run.recovered().snapshot.experiment.callbacks


def told(world: World) -> tuple[list[str], int]:
    state = msgspec.msgpack.decode(journaled(world).states["Notes"], type=dict[str, object])
    return cast("list[str]", state["told"]), cast("int", state["episodes"])


def exact(world: World) -> ExperimentStatus:
    """The run has ended by its callback, and that was told of everything once."""
    world.run(3_000)
    status = world.experiment()
    assert (status.state, status.reason) == ("finished", "callback Notes: enough")
    events, episodes = told(world)
    assert events[0] == "start"
    assert len(events) == len(set(events)), "something was told twice, and counted twice"
    evaluated = [int(each.split()[1]) for each in events if each.startswith("evaluation")]
    assert evaluated == sorted(world.rewards), "an evaluation was not told, or another one was"
    saved = [int(each.split()[1]) for each in events if each.startswith("checkpoint")]
    assert sorted(set(saved)) == sorted(world.records)
    if events[-1].startswith("end"):  # nobody could be told if the learner was dead by then
        assert events[-1] == "end callback Notes: enough"
        assert episodes == len(world.accepted), "each chunk here has one episode"
    changes = journaled(world).changes["learner.learning_rate"]
    assert [value for _, value in changes] == [1e-3 / 2 ** (1 + number) for number in range(len(evaluated))]
    assert [step for step, _ in changes] == sorted(step for step, _ in changes)
    counts = [report.numbers["count"] for report in world.reports if isinstance(report, CallbackReport)]
    assert counts == sorted(set(counts)), "a number was logged twice"
    return status


@pytest.mark.parametrize("part", range(4))
def test_the_coordinator_may_die_at_any_point(part: int) -> None:
    """A sample of all points here; `make faults` goes through every one."""
    points = 0

    def count() -> bool:
        nonlocal points
        points += 1
        return False

    whole = world_of(configured())
    whole.crash_at = count
    exact(whole)
    for point in range(part, points, 4 if LONG else 4 * 20):
        world, passed = world_of(configured()), iter(range(10**9))
        world.crash_at = lambda passed=passed, point=point: next(passed) == point  # type: ignore[misc]
        exact(world)
        assert world.crashes == 1


@pytest.mark.parametrize("seed", range(12 if LONG else 2))
def test_the_learner_may_die_as_well_on_a_bad_network(seed: int) -> None:
    world = world_of(configured(), seed, Faults(loss=0.03, repeat=0.1, delay_s=0.1))
    chance = random.Random(seed)
    world.crash_at = lambda: chance.random() < 0.003

    def mischief() -> None:
        learner = world.of("learner")[0]
        if isinstance(learner.work, LearnerWork) and learner.alive and world.deaths < 3 and chance.random() < 0.01:
            world.restart(learner)

    world.check = mischief
    exact(world)
    assert world.crashes
    assert world.deaths


def test_a_decision_that_the_dying_coordinator_has_not_journaled_is_made_again() -> None:
    """The coordinator is killed when the stop has arrived, and so is the learner that has said it."""
    world = world_of(configured())
    stops = 0

    def crash() -> bool:
        nonlocal stops
        snapshot = None if not world.journal else journaled(world)
        if stops == 0 and snapshot is not None and snapshot.stopped is None and world.coordinator.experiments:
            (experiment,) = world.coordinator.experiments
            if experiment.policies[0].callbacks.book.stopped is not None:  # type: ignore[union-attr]
                stops += 1
                world.restart(world.of("learner")[0])
                return True
        return False

    world.crash_at = crash
    exact(world)
    assert stops == world.crashes == 1


@pytest.mark.parametrize("after", [0, 240])
def test_a_callback_that_raises_fails_the_run_and_is_named(after: int) -> None:
    """Also with the evaluation of the last checkpoint; at the end it is only reported."""
    world = world_of(configured(after, "Failing", stop={"max_env_steps": 240}))
    world.run()
    status = world.experiment()
    reason = "on_evaluation of callback Failing failed: ValueError: I do not like it"
    assert (status.state, status.reason) == ("failed", reason)
    assert any(text.startswith(reason) and "Traceback" in text for _, text in world.said)
    assert any(text.startswith("on_end of callback Failing failed: ") for _, text in world.said)
    assert status.env_step >= after


def test_the_end_waits_for_callbacks_a_bounded_time() -> None:
    world = world_of(configured(1_000_000, stop={"max_env_steps": 240}))
    learner = world.of("learner")[0]
    while not isinstance(learner.work, LearnerWork):
        world.step()
    learner.work.callbacks.call = lambda message: None  # type: ignore[method-assign]
    before_s = world.now_s
    world.run(CALLBACKS_LONGEST_S + 60)
    assert world.now_s - before_s > CALLBACKS_LONGEST_S
    assert world.experiment().state == "finished"
    assert any("the callbacks have not answered" in text for _, text in world.said)


def test_a_decision_about_what_nobody_was_told_is_not_believed() -> None:
    world = world_of(configured())
    learner = world.of("learner")[0]
    while not isinstance(learner.work, LearnerWork):
        world.step()
    learner.say(CallbacksDecided(learner.lease, 1_000, CallbackAnswer([Verdict("Notes", stop="a lie")])))
    while not any("of which nobody was told" in text for _, text in world.said):
        world.step()
    assert world.experiment().state == "running", "the lie has ended nothing"
    world.restart(learner)
    exact(world)
