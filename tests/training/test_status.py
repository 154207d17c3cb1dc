"""A run's time runs from its beginning to its end, over all resumes, and its status is read off those who count."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from remuda.tests.buffer.chunks import WORKER, meta_of
from remuda.tests.coordinator.configs import config
from remuda.tests.training.commander.test_commander import record, result
from remuda.training.commander.commander import Commander
from remuda.training.commander.end import End
from remuda.training.identity import Identity
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.status import RATE_WINDOW_S, LiveStatus, Rate, failed_status
from remuda.wire.messages import Counters, PolicyRef

IDENTITY = Identity("an id", "a name", "/runs/a", "/runs/a/policy/p", priority=0, submitted=1)


@dataclass
class Learner:
    train_iter: int = 0
    policy: PolicyRef = field(default_factory=PolicyRef)


def live(learner: Learner | None = None, *, before_s: float = 0.0) -> LiveStatus:
    return LiveStatus(
        identity=IDENTITY,
        replay=ReplayAccounting(config(), 0.0),
        learning=learner or Learner(),
        commander=Commander(config()),
        before_s=before_s,
    )


def test_its_time_runs_while_it_goes_on() -> None:
    status = live(before_s=7.0)
    assert (status.state, status.wall_s(1_000.0)) == ("queued", 7.0)
    status.start(1_000.0)
    assert (status.state, status.wall_s(1_002.5)) == ("starting", 9.5)
    status.finish(End("max_wall_s", "enough"), 1_003.0)
    assert (status.state, status.reason, status.over) == ("finished", "max_wall_s", True)
    assert status.wall_s(2_000.0) == 10.0


@pytest.mark.parametrize(("state", "wall_s"), [("queued", 7.0), ("running", 9.0), ("failed", 7.0)])
def test_another_coordinator_goes_on_with_its_time(state: str, wall_s: float) -> None:
    status = live()
    status.restore(state, None, 7.0, 1_000.0)  # type: ignore[arg-type]
    assert status.wall_s(1_002.0) == wall_s


def test_the_status_is_read_off_those_who_count() -> None:
    learner = Learner()
    status = live(learner)
    status.start(0.0, "running")
    status.replay.ledger.open(1, WORKER, 1)
    status.note_rates(0.0)
    meta = meta_of(0, 10)
    assert status.replay.accept(meta, 1).fresh
    learner.train_iter, learner.policy = 5, PolicyRef(0, 2, 5)
    status.note_rates(2.0)
    status.commander.started()
    status.commander.saved("initial", record(0))
    status.commander.evaluated(result(0, 3.0, 5.0))
    shown = status.status("somebody", 2.0)
    assert (shown.id, shown.name, shown.run_dir) == ("an id", "a name", "/runs/a")
    assert (shown.state, shown.reason, shown.waiting_for) == ("running", None, "somebody")
    assert (shown.env_step, shown.train_iter, shown.policy_version) == (meta.env_steps, 5, 2)
    assert (shown.episode, shown.wall_s) == (len(meta.episode_returns), 2.0)
    assert (shown.last_return, shown.best_return) == (4.0, 4.0)
    assert (shown.env_steps_per_s, shown.train_iters_per_s) == (meta.env_steps / 2.0, 2.5)
    counters = status.counters(2.0)
    assert counters == Counters(meta.env_steps, 5, len(meta.episode_returns), 2, 2.0)


def test_of_a_run_that_is_lost_the_status_is_that_of_its_last_checkpoint() -> None:
    shown = failed_status(IDENTITY, "its folder is gone", record(500), None)
    assert (shown.state, shown.reason) == ("failed", "its folder is gone")
    assert (shown.env_step, shown.train_iter, shown.wall_s) == (500, 50, 1.0)
    assert (shown.last_return, shown.best_return, shown.env_steps_per_s) == (None, None, 0.0)
    assert failed_status(IDENTITY, "gone", None, None).env_step == 0


def test_the_rate_is_growth_over_the_time_of_its_window() -> None:
    rate = Rate()
    assert rate.per_s() == 0.0
    rate.note(0, 0.0)
    rate.note(900, 0.1)  # too soon for a sample of its own
    assert rate.per_s() == 0.0
    for second in range(1, 40):
        rate.note(1_000 if second < 20 else 1_000 + 10 * (second - 19), float(second))
        if second == 2:
            assert rate.per_s() == pytest.approx(500.0)
    assert rate.per_s() == pytest.approx(10.0)  # the burst of the first second is out of the window
    assert RATE_WINDOW_S < 19
    for second in range(40, 60):
        rate.note(1_200, float(second))
    assert rate.per_s() == 0.0
