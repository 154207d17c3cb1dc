"""Who is killed when is the same for everybody, and spares no role."""

from __future__ import annotations

from itertools import pairwise

import pytest

from remuda.benchmarks.kill_schedule import VICTIMS, kill_schedule


def test_the_seed_decides_and_nothing_else() -> None:
    assert kill_schedule(1, 1_200, 60) == kill_schedule(1, 1_200, 60) != kill_schedule(2, 1_200, 60)


@pytest.mark.parametrize("seed", range(5))
def test_one_kill_in_each_interval_and_each_role_before_any_again(seed: int) -> None:
    kills = kill_schedule(seed, 1_200, 60)
    assert [int(kill.at_s / 60) for kill in kills] == list(range(20))
    gaps_s = [second.at_s - first.at_s for first, second in pairwise(kills)]
    assert 45 <= min(gaps_s) <= max(gaps_s) <= 75
    for first in range(0, 20, len(VICTIMS)):
        assert sorted(kill.role for kill in kills[first : first + len(VICTIMS)]) == sorted(VICTIMS)


def test_more_may_be_hit_than_processes() -> None:
    kills = kill_schedule(3, 600, 60, ("collector", "link"))
    assert {frozenset(kill.role for kill in kills[first : first + 2]) for first in range(0, 10, 2)} == {
        frozenset({"collector", "link"})
    }
