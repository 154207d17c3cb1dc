"""What a herd kept of its training time, by hand."""

from __future__ import annotations

import pytest

from remuda.benchmarks.kill_schedule import Kill
from remuda.benchmarks.training_kept import Loss, Plan, Watched, kept_figures, plan
from remuda.wire.messages import Status

KILLS = (Kill(10.0, "collector", 0.0), Kill(30.0, "learner", 0.0))
PLAN = Plan(40.0, 20.0, KILLS)
"""In peace until 10 s, with kills until 50 s, in peace until 60 s."""


def never(status: Status) -> bool:
    return False


def watched() -> Watched:
    """100 steps and 10 updates a second; nothing for 4 s after the first kill, and for 2 s after the second."""
    seen = Watched(PLAN)
    env_step = 1_000
    for second in range(61):
        gone = 20 < second <= 24 or 40 < second <= 42
        env_step += 0 if gone else 100
        seen.see(float(second), env_step, env_step // 10)
    seen.losses = [Loss(kill, 10.0 + kill.at_s, never) for kill in KILLS]
    seen.share_out()
    return seen


def test_the_pace_with_kills_is_that_of_the_time_with_kills() -> None:
    seen = watched()
    assert seen.peace_steps_per_s == 100.0
    assert seen.killed_steps_per_s == pytest.approx((40 - 6) * 100 / 40)
    assert seen.killed_updates_per_s / seen.peace_updates_per_s == pytest.approx(34 / 40)


def test_each_kill_is_charged_with_what_was_not_trained_until_the_next() -> None:
    seen = watched()
    assert [loss.lost_s for loss in seen.losses] == pytest.approx([4.0, 2.0])
    assert seen.lost_s == pytest.approx(3.0)


def test_what_is_counted_while_nobody_could_look_counts_at_the_next_look() -> None:
    seen = Watched(PLAN)
    for at_s, env_step in ((0.0, 0), (9.0, 900), (13.0, 1_300), (49.0, 4_900), (51.0, 5_100), (60.0, 6_000)):
        seen.see(at_s, env_step, 0)
    assert seen.killed_steps_per_s == pytest.approx((4_900 - 900) / 40)
    assert seen.peace_steps_per_s == pytest.approx((900 + 6_000 - 4_900) / 20)


def test_the_figures_compare_the_herd_with_itself() -> None:
    steps, updates = kept_figures("this", watched(), 0.9)
    assert steps.name == "this: env steps, 0.666667 min, a kill every 20 s"
    assert (steps.ours, steps.reference, steps.reference_name) == (85.0, 100.0, "undisturbed")
    assert (steps.ratio, steps.goal, steps.met) == (0.85, ">= 0.9", False)
    assert updates.ratio == pytest.approx(0.85)


def test_a_plan_is_made_of_two_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_EFFECTIVE_MINUTES", "2")
    monkeypatch.setenv("REMUDA_EFFECTIVE_INTERVAL_S", "24")
    made = plan(("collector", "link"))
    assert (made.duration_s, made.peace_s, made.end_s) == (120.0, 30.0, 180.0)
    assert [int(kill.at_s / 24) for kill in made.kills] == [0, 1, 2, 3, 4]
    assert {kill.role for kill in made.kills} == {"collector", "link"}
    assert made.how == "2 min, a kill every 24 s"
