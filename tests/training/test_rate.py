"""A rate is growth over the last seconds, whenever it is asked for."""

from __future__ import annotations

import pytest

from remuda.training.status import RATE_WINDOW_S, Rate


def test_before_two_samples_the_rate_is_zero() -> None:
    rate = Rate()
    assert rate.per_s() == 0.0
    rate.note(100, 1.0)
    rate.note(200, 1.1)  # too soon for a sample of its own
    assert rate.per_s() == 0.0


def test_the_rate_is_growth_over_time() -> None:
    rate = Rate()
    for value, now_s in ((100, 1.0), (300, 2.0), (300, 3.0)):
        rate.note(value, now_s)
    assert rate.per_s() == pytest.approx(200 / 2.0)


def test_what_is_long_ago_is_forgotten() -> None:
    rate = Rate()
    rate.note(0, 0.0)
    for second in range(1, 40):
        rate.note(1_000 if second < 20 else 1_000 + 10 * (second - 19), float(second))
    assert rate.per_s() == pytest.approx(10.0)  # the burst of the first second is out of the window
    assert RATE_WINDOW_S < 19


def test_a_counter_that_stands_still_comes_to_zero() -> None:
    rate = Rate()
    rate.note(0, 0.0)
    rate.note(500, 1.0)
    for second in range(2, 15):
        rate.note(500, float(second))
    assert rate.per_s() == 0.0
