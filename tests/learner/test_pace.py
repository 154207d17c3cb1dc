"""At most a share of the time, for any cost of a turn, and a little ahead at first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.learner.publisher import Pace


def test_what_was_spent_must_be_earned_before_the_next() -> None:
    pace = Pace(0.25, ahead_s=0.0)
    assert pace.allows(10.0)
    pace.spent(0.5, now_s=10.0)
    assert not pace.allows(11.9)
    assert pace.allows(12.0)


@given(
    share=st.floats(0.01, 1.0),
    ahead_s=st.floats(0.0, 5.0),
    turns=st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(1e-6, 2.0)), min_size=1, max_size=80),
)
def test_all_that_is_spent_is_at_most_what_was_earned_and_lent(
    share: float, ahead_s: float, turns: list[tuple[float, float]]
) -> None:
    """Except the cost of the last turn, which was unknown before it."""
    pace, now_s, costs_s = Pace(share, ahead_s=ahead_s), 0.0, [0.0]
    for pause_s, cost_s in turns:
        now_s += pause_s
        if pace.allows(now_s):
            pace.spent(cost_s, now_s)
            costs_s.append(cost_s)
            assert sum(costs_s) <= share * now_s + ahead_s + cost_s + 1e-9


@pytest.mark.parametrize(
    ("share", "ahead_s"), [(0.0, 1.0), (-0.1, 1.0), (1.1, 1.0), (float("nan"), 1.0), (0.5, -1.0), (0.5, float("nan"))]
)
def test_what_makes_no_sense_is_refused(share: float, ahead_s: float) -> None:
    with pytest.raises(ValueError, match="share must be in"):
        Pace(share, ahead_s=ahead_s)
