"""Growing files in few buckets: no extreme, no sum and no order is lost."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.page.growing import FloatArray, Pyramid, Reduction

ALL: tuple[Reduction, ...] = ("first", "last", "min", "max", "sum")
NUMBERS = st.floats(-1e6, 1e6) | st.just(math.nan)


def table(values: list[float]) -> FloatArray:
    """Every value in a column for each reduction."""
    return np.repeat(np.array(values, np.float64)[:, None], len(ALL), axis=1)


def expected(values: list[float], width: int) -> list[tuple[float, ...]]:
    found: list[tuple[float, ...]] = []
    for begin in range(0, len(values), width):
        there = [value for value in values[begin : begin + width] if not math.isnan(value)]
        if there:
            found.append((there[0], there[-1], min(there), max(there), math.fsum(there)))
        else:
            found.append((math.nan, math.nan, math.nan, math.nan, 0.0))
    return found


@given(st.lists(st.lists(NUMBERS, max_size=40), max_size=8), st.sampled_from([2, 4, 10]))
def test_each_bucket_is_that_of_its_rows_whatever_the_rows_came_in(pieces: list[list[float]], most: int) -> None:
    pyramid, values = Pyramid(ALL, most_buckets=most), list[float]()
    for piece in pieces:
        pyramid.extend(table(piece))
        values += piece
    buckets = pyramid.buckets()
    assert pyramid.rows == len(values)
    assert len(buckets) <= most
    np.testing.assert_allclose(buckets, np.array(expected(values, pyramid.width)).reshape(-1, len(ALL)), atol=1e-6)


@given(st.lists(NUMBERS, min_size=1, max_size=60), st.integers(1, 20))
def test_fewer_buckets_keep_extremes_sums_and_ends(values: list[float], most: int) -> None:
    pyramid = Pyramid(ALL, most_buckets=64)
    pyramid.extend(table(values))
    buckets = pyramid.buckets(most)
    assert 1 <= len(buckets) <= most
    whole = expected(values, len(values))[0]
    numbers = buckets[~np.isnan(buckets[:, 0])]
    if len(numbers):
        assert (numbers[0, 0], numbers[-1, 1]) == whole[:2]
        assert (numbers[:, 2].min(), numbers[:, 3].max()) == whole[2:4]
    assert math.isclose(buckets[:, 4].sum(), whole[4], abs_tol=1e-6)


def test_by_hand() -> None:
    pyramid = Pyramid(("last", "min", "max"), most_buckets=2)
    for value in (5.0, 1.0, 9.0, 4.0, 7.0):
        pyramid.extend(np.full((1, 3), value))
    # after two full buckets of one row each, each is one of two rows; after four rows one of four
    assert pyramid.width == 4
    assert pyramid.buckets().tolist() == [[4.0, 1.0, 9.0], [7.0, 7.0, 7.0]]


def test_a_long_file_takes_no_more_memory() -> None:
    pyramid = Pyramid(("max",), most_buckets=8)
    spike = 77_777
    rows = np.zeros((100_000, 1))
    rows[spike] = 1.0
    for begin in range(0, len(rows), 999):
        pyramid.extend(rows[begin : begin + 999])
    assert pyramid.size_bytes <= 8 * 9
    assert pyramid.rows == 100_000
    found = pyramid.buckets()[:, 0]
    assert found.tolist().count(1.0) == 1
    assert found[spike // pyramid.width] == 1.0


def test_what_it_is_not_made_for_is_refused() -> None:
    with pytest.raises(ValueError, match="even number"):
        Pyramid(ALL, most_buckets=3)
    with pytest.raises(ValueError, match="even number"):
        Pyramid(ALL, most_buckets=0)
    with pytest.raises(ValueError, match="5 columns"):
        Pyramid(ALL).extend(np.zeros((2, 4)))
