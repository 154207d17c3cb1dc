"""Why a run ends says in which state it is over, and how long its last evaluation may take."""

from __future__ import annotations

import pytest

from remuda.config.workers import StopConfig
from remuda.tests.coordinator.configs import config
from remuda.training.commander.commander import Commander
from remuda.training.commander.end import End, evaluation_is_too_late, longer_s
from remuda.wire.messages import Counters, ExperimentState


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("stop_value", "finished"),
        ("max_env_steps", "finished"),
        ("max_train_iters", "finished"),
        ("max_wall_s", "finished"),
        ("stopped", "stopped"),
        ("ValueError: the floor gave way", "failed"),
        ("5 failures in a row; workers fail: no", "failed"),
    ],
)
def test_each_reason_has_its_state(reason: str, state: ExperimentState) -> None:
    end = End(reason, "as the log says")
    assert end.state == state
    assert end.on_request == (state == "stopped")


@pytest.mark.parametrize(
    ("counters", "reason"),
    [
        (Counters(env_step=99, train_iter=9, wall_s=0.9), None),
        (Counters(env_step=100), "max_env_steps"),
        (Counters(train_iter=10), "max_train_iters"),
        (Counters(wall_s=1.0), "max_wall_s"),
        (Counters(env_step=100, train_iter=10, wall_s=1.0), "max_env_steps"),
    ],
)
def test_every_budget_that_is_used_up_ends_a_run(counters: Counters, reason: str | None) -> None:
    stop = {"max_env_steps": 100, "max_train_iters": 10, "max_wall_s": 1.0}
    end = Commander(config(stop=stop)).reached(counters)
    assert (None if end is None else end.reason) == reason


@pytest.mark.parametrize(("max_wall_s", "longer"), [(1.0, 5.0), (50.0, 5.0), (80.0, 8.0), (100_000.0, 600.0)])
def test_a_tenth_longer_within_bounds(max_wall_s: float, longer: float) -> None:
    assert longer_s(max_wall_s) == pytest.approx(longer)


def test_what_held_up_an_evaluation_is_not_taken_from_its_time() -> None:
    stop = StopConfig(max_env_steps=100, max_wall_s=80.0)
    assert not evaluation_is_too_late(stop, wall_s=87.9, waited_s=87.9), "8 s longer than 80 s"
    assert evaluation_is_too_late(stop, wall_s=88.0, waited_s=88.0)
    assert not evaluation_is_too_late(stop, wall_s=1_000.0, waited_s=7.9), "the save before it took long"
    assert evaluation_is_too_late(stop, wall_s=1_000.0, waited_s=8.0)
    assert not evaluation_is_too_late(StopConfig(max_env_steps=100), wall_s=1e9, waited_s=1e9)
