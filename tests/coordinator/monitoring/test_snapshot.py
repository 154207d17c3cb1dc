"""Health: well while the loop turns within its limit, and not well in any other case, with the reason."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from remuda.coordinator.monitoring.snapshot import LOOP_LIMIT_S, health
from remuda.tests.coordinator.monitoring.snapshots import SNAPSHOT

NOW_S = SNAPSHOT.measured_s


@pytest.mark.parametrize("age_s", [-0.1, 0.0, 1.0, LOOP_LIMIT_S])
def test_a_loop_that_turns_is_well(age_s: float) -> None:
    found = health(SNAPSHOT, NOW_S + age_s)
    assert found.is_well
    assert found.loop_age_s == max(age_s, 0.0)


def test_a_loop_that_has_not_turned_for_too_long_is_stalled() -> None:
    found = health(SNAPSHOT, NOW_S + LOOP_LIMIT_S + 2.5)
    assert found.status == "stalled"
    assert found.reason == "the coordinator's loop has not turned for 7.5 s; 5 s are allowed"


def test_a_loop_that_stalls_while_it_drains_is_stalled() -> None:
    assert health(replace(SNAPSHOT, draining=True), NOW_S + 60.0).status == "stalled"
