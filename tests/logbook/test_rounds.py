"""Rounds reach the budget, end with a row, and count as rlpyt's runners do where those reach it too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.logbook.progress import Rounds


@pytest.mark.parametrize(
    ("budget", "interval", "round_env_steps", "per_row", "total"),
    [
        (50_000_000, 1_000, 4 * 1, 250, 12_500_000),  # its first example: T = 4, B = 1
        (50_000_000, 100_000, 5 * 16 * 2, 625, 312_500),  # T = 5, B = 16, two replicas
        (1_000, 300, 4 * 16, 4, 16),  # rounded up to a row: 1,024 steps
        (1_000, 300, 4 * 16 * 2, 2, 8),
        (1_000, 10, 64, 1, 16),  # an interval below one round
    ],
)
def test_rounds_as_rlpyt_counts_them(
    budget: int, interval: int, round_env_steps: int, per_row: int, total: int
) -> None:
    rounds = Rounds.of(budget_env_steps=budget, interval_env_steps=interval, round_env_steps=round_env_steps)
    assert (rounds.env_steps, rounds.per_row, rounds.total) == (round_env_steps, per_row, total)


@pytest.mark.parametrize(
    ("budget", "interval", "round_env_steps", "falls_short", "total"),
    [
        (2_000_000, 10_000, 180, 1_980_000, 11_165),  # its asynchronous runner: 11,000 rounds of 180
        (1_000, 1_000, 64, 960, 30),  # its synchronous one: 15 rounds, and that is a row
    ],
)
def test_where_rlpyt_stops_short_of_the_budget_these_do_not(
    budget: int, interval: int, round_env_steps: int, falls_short: int, total: int
) -> None:
    rounds = Rounds.of(budget_env_steps=budget, interval_env_steps=interval, round_env_steps=round_env_steps)
    assert rounds.total == total
    assert falls_short < budget <= rounds.total * rounds.env_steps


@given(st.integers(1, 10**7), st.integers(1, 10**6), st.integers(1, 10**4))
def test_the_last_round_is_the_first_row_that_has_reached_the_budget(budget: int, interval: int, size: int) -> None:
    rounds = Rounds.of(budget_env_steps=budget, interval_env_steps=interval, round_env_steps=size)
    assert rounds.ends_with_row(rounds.total)
    assert rounds.total * size - rounds.interval_env_steps < budget <= rounds.total * size
    assert rounds.interval_env_steps <= max(interval, size)
    assert interval - rounds.interval_env_steps < size


def test_rows_come_after_every_so_many_rounds() -> None:
    rounds = Rounds.of(budget_env_steps=1_000, interval_env_steps=300, round_env_steps=64)
    assert [number for number in range(1, rounds.total + 1) if rounds.ends_with_row(number)] == [4, 8, 12, 16]


@pytest.mark.parametrize("bad", [(0, 1, 1), (1, 0, 1), (1, 1, -64)])
def test_there_is_no_such_thing_as_a_round_of_nothing(bad: tuple[int, int, int]) -> None:
    budget, interval, size = bad
    with pytest.raises(ValueError, match="all must be positive"):
        Rounds.of(budget_env_steps=budget, interval_env_steps=interval, round_env_steps=size)
