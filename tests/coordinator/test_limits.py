"""Limits on the silence of workers are given by name, and those that make no sense are refused."""

from __future__ import annotations

import re

import pytest

from remuda.coordinator.limits import Limits


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
