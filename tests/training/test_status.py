"""A run's time runs from its beginning to its end, over all resumes, and its status is read off those who count."""

from __future__ import annotations

import pytest

from remuda.tests.training.commander.test_commander import record
from remuda.training.commander.end import End
from remuda.training.run_snapshot import Identity
from remuda.training.status import RATE_WINDOW_S, Rate, RunState, failed_status, joined_status
from remuda.wire.messages import ExperimentState

IDENTITY = Identity("an id", "a name", "/runs/a", "/runs/a/policy/p", priority=0, submitted=1)


def test_its_time_runs_while_it_goes_on() -> None:
    run = RunState(7.0)
    assert (run.state, run.wall_s(1_000.0)) == ("queued", 7.0)
    run.start(1_000.0)
    assert (run.state, run.wall_s(1_002.5)) == ("starting", 9.5)
    run.finish(End("max_wall_s", "enough"), 1_003.0)
    assert (run.state, run.reason, run.over) == ("finished", "max_wall_s", True)
    assert run.wall_s(2_000.0) == 10.0


@pytest.mark.parametrize(("state", "wall_s"), [("queued", 7.0), ("running", 9.0), ("failed", 7.0)])
def test_another_coordinator_goes_on_with_its_time(state: ExperimentState, wall_s: float) -> None:
    run = RunState()
    run.restore([state], None, 7.0, 1_000.0)
    assert run.wall_s(1_002.0) == wall_s


def test_the_status_of_several_policies_has_the_sums_of_their_learning_and_each_of_them() -> None:
    one = failed_status(IDENTITY, "gone", record(500), None)
    other = failed_status(IDENTITY, "gone", record(400), None)
    joined = joined_status({"fox": one, "hare": other}, [1.0, 2.0])
    assert (joined.env_step, joined.train_iter, joined.last_return) == (500, 90, 1.5)
    assert [(policy.name, policy.train_iter) for policy in joined.policies] == [("fox", 50), ("hare", 40)]


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
