"""Five statistics are numpy's for all values, and histograms count every value once."""

from __future__ import annotations

import math
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.config.declaration import BESIDES_MEAN
from remuda.logbook.statistics import Statistics, counted, put_together, spread_evenly, trimmed, weighted_means
from remuda.wire.messages import LARGEST_METRIC, Histogram, MetricMean

FINITE = st.floats(-1e150, 1e150, allow_subnormal=False)
ODD = st.sampled_from([math.nan, math.inf, -math.inf])


@given(st.lists(FINITE | ODD, max_size=9))
def test_the_five_are_numpys(values: list[float]) -> None:
    spread = Statistics.of(values)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        functions = (np.mean, np.std, np.max, np.min, np.median)
        expected = [float(function(values)) for function in functions] if values else [math.nan] * 5
    got = [spread.mean, spread.std, spread.max, spread.min, spread.median]
    np.testing.assert_array_equal(got, expected)


def test_the_other_four_are_named_after_what_they_are_of() -> None:
    assert Statistics.of([1.0, 3.0]).besides_mean("loss") == {
        "loss_std": 1.0,
        "loss_max": 3.0,
        "loss_min": 1.0,
        "loss_median": 2.0,
    }
    assert [f"loss_{name}" for name in BESIDES_MEAN] == list(Statistics().besides_mean("loss"))


def test_of_many_values_the_median_is_numpys_too() -> None:
    rng = np.random.default_rng(0)
    for size in (999, 1_000, 5_001, 5_002):
        values = rng.normal(size=size)
        spread = Statistics.of(values)
        assert (spread.median, spread.max, spread.min) == (np.median(values), values.max(), values.min())
        values[size // 3] = math.nan
        assert all(math.isnan(value) for value in vars(Statistics.of(values)).values())


def test_means_are_weighted_by_their_steps_and_a_chunk_without_one_has_no_say() -> None:
    chunks = [{"a": MetricMean(2.0, 3)}, {"b": MetricMean(-1.0, 1)}, {"a": MetricMean(6.0, 1), "b": MetricMean(1.0, 7)}]
    assert weighted_means(chunks) == {"a": 3.0, "b": 0.75}
    assert weighted_means([]) == {}


@given(st.lists(st.tuples(st.floats(-LARGEST_METRIC, LARGEST_METRIC), st.integers(1, 2**53)), min_size=1, max_size=9))
def test_means_of_means_are_finite_and_between_them(told: list[tuple[float, int]]) -> None:
    found = weighted_means({"a": MetricMean(value, steps)} for value, steps in told)["a"]
    slack = 1e-9 * max(abs(value) for value, _ in told)
    assert min(value for value, _ in told) - slack <= found <= max(value for value, _ in told) + slack


def test_what_lies_beyond_is_in_the_outer_buckets_and_what_is_no_number_in_none() -> None:
    found = counted(np.array([-5.0, 9.0, 9.5, np.nan, np.inf, -np.inf], np.float32), np.array([0.0, 1.0, 2.0]))
    assert (found.counts, found.total) == ([1, 2], 13.5)


def test_values_are_spread_over_buckets_of_the_same_width() -> None:
    assert spread_evenly(np.array([-1.0, 0.0, 1.0, 3.0]), 4) == Histogram(
        left=-1.0, rights=[0.0, 1.0, 2.0, 3.0], counts=[1, 1, 1, 1], total=3.0, total_squares=11.0
    )
    assert spread_evenly(np.array([-1.0, 0.0, 1.0, 3.0, 1e308, -1e308, np.nan]), 4) == spread_evenly(
        np.array([-1.0, 0.0, 1.0, 3.0]), 4
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
    values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1), buckets=st.integers(1, 40)
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
