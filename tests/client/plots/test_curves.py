"""Averaging seeds whose rows lie at different positions: hand calculations, and what holds for all data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from remuda.client.plots.curves import MAX_POSITIONS, SAME_END, Estimator, Line, combined, smoothed
from remuda.client.plots.runs import FloatArray


def array(*values: float) -> FloatArray:
    return np.array(values, np.float64)


FINITE = st.floats(-1e6, 1e6, allow_nan=False, width=32)


@st.composite
def lines(draw: st.DrawFn) -> Line:
    x = sorted(draw(st.sets(st.integers(0, 10_000), min_size=1, max_size=12)))
    y = draw(arrays(np.float64, len(x), elements=FINITE))
    return Line(np.array(x, np.float64), y)


# --- one run
@settings(deadline=None)
@given(arrays(np.float64, st.integers(1, 30), elements=FINITE), st.integers(1, 40))
def test_smoothing_is_a_convolution_with_its_edges_counted_right(y: FloatArray, window: int) -> None:
    ones = np.ones(window)
    begin = (window - 1) // 2
    whole = np.convolve(y, ones) / np.convolve(np.ones(len(y)), ones)
    np.testing.assert_allclose(smoothed(y, window), whole[begin : begin + len(y)], atol=1e-6)


# --- several runs
def test_seeds_at_other_positions_meet_on_straight_lines() -> None:
    got = combined("", [Line(array(0, 10, 20), array(0, 10, 0)), Line(array(0, 5, 20), array(2, 2, 8))])
    assert got.x.tolist() == [0, 5, 10, 20]
    np.testing.assert_allclose(got.y, [1, (5 + 2) / 2, (10 + 4) / 2, 4])
    np.testing.assert_allclose(got.high - got.low, [2, 3, 6, 8])


@pytest.mark.parametrize(
    ("estimator", "values", "y", "low", "high"),
    [
        ("mean", (0, 2, 3, 5, 10), 4, 4 - 11.6**0.5, 4 + 11.6**0.5),
        ("median", (0, 2, 4, 10), 3, 1.5, 5.5),
        ("max", (0, 2, 3, 5, 10), 10, np.nan, np.nan),
        ("min", (0, 2, 3, 5, 10), 0, np.nan, np.nan),
    ],
)
def test_estimators_by_hand(estimator: Estimator, values: tuple[float, ...], y: float, low: float, high: float) -> None:
    got = combined("", [Line(array(0), array(value)) for value in values], estimator)
    np.testing.assert_allclose([got.y[0], got.low[0], got.high[0]], [y, low, high])


def test_very_long_runs_keep_a_bounded_number_of_positions() -> None:
    x = np.arange(100_000, dtype=np.float64)
    got = combined("", [Line(x, 2 * x), Line(x + 0.5, 2 * x + 1)])
    assert len(got.x) == MAX_POSITIONS
    assert (got.x[0], got.x[-1]) == (0, 99_999.5)
    np.testing.assert_allclose(got.y, 2 * got.x, atol=0.5)


@settings(deadline=None)
@given(st.lists(lines(), min_size=1, max_size=5))
def test_no_seed_is_dropped(several: list[Line]) -> None:
    got = combined("", several)
    assert got.runs == len(several)
    for one in several:
        assert set(one.x) <= set(got.x)
    near = SAME_END * (got.x[-1] - got.x[0])
    first = [got.x[0] if one.x[0] - got.x[0] <= near else one.x[0] for one in several]
    last = [got.x[-1] if got.x[-1] - one.x[-1] <= near else one.x[-1] for one in several]
    reach = [(begin <= got.x) & (got.x <= end) for begin, end in zip(first, last, strict=True)]
    assert got.count.tolist() == np.sum(reach, axis=0).tolist()
    assert np.isfinite(got.y[got.count > 0]).all()
    lowest, highest = (float(f([f(one.y) for one in several])) for f in (min, max))
    assert (got.y[got.count > 0] >= lowest - 1e-6).all()
    assert (got.y[got.count > 0] <= highest + 1e-6).all()
