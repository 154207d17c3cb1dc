"""What an algorithm says of itself is data, checked when it is made; schedules by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from remuda.config.declaration import Declaration, Steps
from remuda.config.section import value_at


def declared(**changes: Any) -> Declaration:
    given: dict[str, Any] = {"rows": Steps(n_step=1, discount=0.9), "reuse": "replay", "monitored": ("loss",)}
    return Declaration(**given | changes)


@given(
    points=st.dictionaries(st.integers(0, 10**9), st.floats(-1e6, 1e6), min_size=1, max_size=8),
    at=st.integers(0, 10**10),
)
def test_a_schedule_meets_its_points_and_stays_between_them(points: dict[int, float], at: int) -> None:
    schedule = tuple(sorted(points.items()))
    assert [value_at(schedule, step) for step, _ in schedule] == [value for _, value in schedule]
    slack = 1e-6
    assert min(points.values()) - slack <= value_at(schedule, at) <= max(points.values()) + slack


def test_exploration_is_asked_for_by_environment_steps() -> None:
    both = declared(exploration={"epsilon": ((0, 1.0), (100, 0.0)), "temperature": ((0, 2.0),)})
    assert both.exploration_at(50) == {"epsilon": 0.5, "temperature": 2.0}
    assert both.least_exploration == {"epsilon": 0.0, "temperature": 2.0}
    assert declared().exploration_at(50) == declared().least_exploration == {}


def test_a_column_may_show_any_statistic_of_a_metric_with_statistics() -> None:
    both = declared(
        with_statistics=("loss",), monitored=("loss", "kl"), loss_columns={"MaxLoss": "loss_max", "KL": "kl"}
    )
    assert both.told == ("loss", "kl", "loss_std", "loss_max", "loss_min", "loss_median")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"loss_columns": {"LossQ": "los"}}, "LossQ: los"),
        ({"with_statistics": ("kl",)}, "with_statistics names what is not in monitored: kl"),
        ({"exploration": {"epsilon": ((5, 1.0), (5, 0.0))}}, "rising order"),
        ({"loss_columns": {"Loss Q": "loss"}}, "match pattern"),
        ({"collected": ("reward_mean",)}, "collected names what logs or progress.txt have already: reward_mean"),
        ({"collected": ("lr",), "loss_columns": {"lr": "loss"}}, "already: lr"),
        ({"collected": ("speed", "speed")}, "already: speed, speed"),
        ({"collected": ("a/b",)}, "match pattern"),
        ({"collected": tuple(f"metric_{number}" for number in range(51))}, "at most 50"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        declared(**changes)
