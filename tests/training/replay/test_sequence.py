"""Which numbers were seen: always what a plain set would say, in memory bounded by the gaps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from remuda.training.replay.ledger import SequenceSet, TooManyGapsError

MAX_GAPS = 4


class AgainstAPlainSet(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model: set[int] = set()
        self.sequence = SequenceSet(max_gaps=MAX_GAPS)

    @rule(number=st.integers(0, 25))
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
        assert self.sequence.high_water == max(self.model, default=-1)
        assert self.sequence.missing == _gaps(self.model)
        for number in range(-1, 27):
            assert (number in self.sequence) is (number in self.model)


TestAgainstAPlainSet = AgainstAPlainSet.TestCase


def _gaps(seen: set[int]) -> tuple[range, ...]:
    """The maximal runs of numbers from 0 on, below the highest seen, that were not seen."""
    gaps: list[range] = []
    start = 0
    for number in sorted(seen):
        if number > start:
            gaps.append(range(start, number))
        start = number + 1
    return tuple(gaps)


def test_a_series_in_order_leaves_no_gaps() -> None:
    sequence = SequenceSet(max_gaps=0)
    assert all(sequence.add(number) for number in range(100_000))
    assert sequence.missing == ()
    assert sequence.high_water == 99_999
    assert not sequence.add(50_000)


def test_a_huge_hole_is_one_gap() -> None:
    sequence = SequenceSet(max_gaps=1)
    assert sequence.add(2**53)
    assert sequence.missing == (range(0, 2**53),)
    assert sequence.high_water == 2**53


def test_a_number_before_the_series_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"-1 is below 0, where the series begins"):
        SequenceSet().add(-1)
    assert -1 not in SequenceSet()


@given(st.lists(st.integers(0, 60)), st.lists(st.integers(0, 60)))
def test_one_restored_goes_on_as_the_one_it_was(before: list[int], after: list[int]) -> None:
    sequence = SequenceSet()
    for number in before:
        sequence.add(number)
    restored = SequenceSet.of(sequence.high_water, sequence.missing)
    assert [restored.add(number) for number in after] == [sequence.add(number) for number in after]
    assert (restored.high_water, restored.missing) == (sequence.high_water, sequence.missing)


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
