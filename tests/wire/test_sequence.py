"""Which numbers were seen: always what a plain set would say, in memory bounded by the gaps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from remuda.wire.sequence import SequenceSet, TooManyGapsError

FIRST = 3
MAX_GAPS = 4


class AgainstAPlainSet(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model: set[int] = set()
        self.sequence = SequenceSet(first=FIRST, max_gaps=MAX_GAPS)

    @rule(number=st.integers(FIRST, FIRST + 25))
    def add(self, number: int) -> None:
        gaps_then = _gaps(self.model | {number})
        if len(gaps_then) > MAX_GAPS:
            with pytest.raises(TooManyGapsError):
                self.sequence.add(number)
            return
        assert self.sequence.add(number) is (number not in self.model)
        self.model.add(number)

    @invariant()
    def says_what_the_set_says(self) -> None:
        assert self.sequence.high_water == max(self.model, default=FIRST - 1)
        assert self.sequence.count == len(self.model)
        assert self.sequence.missing == _gaps(self.model)
        for number in range(FIRST + 27):
            assert (number in self.sequence) is (number in self.model)


TestAgainstAPlainSet = AgainstAPlainSet.TestCase


def _gaps(seen: set[int]) -> tuple[range, ...]:
    """The maximal runs of numbers from FIRST on, below the highest seen, that were not seen."""
    gaps: list[range] = []
    start = FIRST
    for number in sorted(seen):
        if number > start:
            gaps.append(range(start, number))
        start = number + 1
    return tuple(gaps)


def test_a_series_in_order_leaves_no_gaps() -> None:
    sequence = SequenceSet(max_gaps=0)
    assert all(sequence.add(number) for number in range(100_000))
    assert sequence.missing == ()
    assert sequence.count == 100_000
    assert not sequence.add(50_000)


def test_a_huge_hole_is_one_gap() -> None:
    sequence = SequenceSet(max_gaps=1)
    assert sequence.add(2**53)
    assert sequence.missing == (range(0, 2**53),)
    assert sequence.count == 1


def test_a_number_before_the_series_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"0 is below 1, where the series begins"):
        SequenceSet(first=1).add(0)
    assert 0 not in SequenceSet(first=1)


@given(st.permutations(range(60)))
def test_any_order_ends_without_gaps(order: list[int]) -> None:
    sequence = SequenceSet()
    assert all(sequence.add(number) for number in order)
    assert sequence.missing == ()
    assert sequence.high_water == 59


def test_too_many_gaps_leave_the_set_as_it_was() -> None:
    sequence = SequenceSet(max_gaps=2)
    for number in (1, 3):
        sequence.add(number)
    with pytest.raises(TooManyGapsError, match="the most is 2"):
        sequence.add(5)
    assert sequence.high_water == 3
    assert sequence.add(4)
    assert sequence.add(0)
    assert sequence.add(6), "a gap was filled, so there is room for another"
