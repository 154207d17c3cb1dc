"""Histograms count every value once, wherever it lies, and can be put together."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.logbook.statistics import counted, put_together, spread_evenly, trimmed
from remuda.wire.messages import Histogram


def test_values_are_counted_between_edges() -> None:
    edges = np.array([0.0, 1.0, 2.0, 4.0])
    found = counted(np.array([[0.0, 0.5, 1.0], [2.0, 3.9, 4.0]]), edges)
    assert found == Histogram(
        left=0.0, rights=[1.0, 2.0, 4.0], counts=[2, 1, 3], total=11.4, total_squares=0.25 + 1 + 4 + 15.21 + 16
    )


def test_what_lies_beyond_is_in_the_outer_buckets_and_what_is_no_number_in_none() -> None:
    found = counted(np.array([-5.0, 9.0, 9.5, np.nan, np.inf, -np.inf], np.float32), np.array([0.0, 1.0, 2.0]))
    assert (found.counts, found.total) == ([1, 2], 13.5)


def test_values_are_spread_over_buckets_of_the_same_width() -> None:
    assert spread_evenly(np.array([-1.0, 0.0, 1.0, 3.0]), 4) == Histogram(
        left=-1.0, rights=[0.0, 1.0, 2.0, 3.0], counts=[1, 1, 1, 1], total=3.0, total_squares=11.0
    )
    same = spread_evenly(np.full(5, 2.0), 2)
    assert same is not None
    assert (same.left, same.rights, same.counts) == (1.5, [2.0, 2.5], [0, 5])
    assert spread_evenly(np.array([np.nan]), 4) is None
    assert spread_evenly(np.array([]), 4) is None


def test_histograms_of_the_same_buckets_are_put_together() -> None:
    edges = np.array([0.0, 1.0, 2.0])
    one, other = counted(np.array([0.5, 0.5]), edges), counted(np.array([0.5, 1.5]), edges)
    assert put_together(one, other) == counted(np.array([0.5, 0.5, 0.5, 1.5]), edges)
    with pytest.raises(ValueError, match="different buckets"):
        put_together(one, counted(np.array([0.5]), np.array([0.0, 2.0])))
    most = Histogram(0.0, [1.0], [2**53])
    assert put_together(most, most).counts == [2**53], "more than a message may say"


def test_empty_buckets_at_both_ends_are_left_out() -> None:
    whole = Histogram(0.0, [1.0, 2.0, 3.0, 4.0, 5.0], [0, 3, 0, 1, 0], total=7.0)
    assert trimmed(whole) == Histogram(1.0, [2.0, 3.0, 4.0], [3, 0, 1], total=7.0)
    assert trimmed(trimmed(whole)) == trimmed(whole)
    empty = Histogram(0.0, [1.0, 2.0], [0, 0])
    assert trimmed(empty) == empty


@given(
    values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1),
    buckets=st.integers(1, 40),
)
def test_no_value_is_lost(values: list[float], buckets: int) -> None:
    found = spread_evenly(np.array(values, np.float32), buckets)
    assert found is not None
    assert sum(found.counts) == sum(trimmed(found).counts) == len(values)
    assert found.left <= min(values)
    assert max(values) <= found.rights[-1]
    assert [found.left, *found.rights] == sorted([found.left, *found.rights])


def test_sums_that_no_float_holds_stay_finite() -> None:
    """An environment may pay 1e200, whose square is infinite: what a peer is sent must be finite."""
    largest = sys.float_info.max
    huge = counted(np.array([1e200, -1e200]), np.array([0.0, 1.0]))
    assert (huge.total, huge.total_squares) == (0.0, largest)
    both = put_together(huge, huge)
    assert (both.total, both.total_squares) == (0.0, largest)
