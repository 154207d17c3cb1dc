"""Combines the rows of several seeds into a curve with a band."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from remuda.client.plots.runs import FloatArray

Estimator = Literal["mean", "median", "max", "min"]

MAX_POSITIONS = 1_000
"""Limit for the positions of a curve: more than the columns of dots in a picture."""
SAME_END = 0.02
"""Share of the whole range: ends of lines within this distance count as equal."""


@dataclass(frozen=True)
class Line:
    """Values of one run, all finite; x rises strictly."""

    x: FloatArray
    y: FloatArray


@dataclass(frozen=True)
class Curve:
    """The runs of a group as one line; all arrays have an element per position."""

    label: str
    x: FloatArray
    y: FloatArray
    low: FloatArray
    """The band around y; nan without a band."""
    high: FloatArray
    count: FloatArray
    """Number of runs with a value at a position."""
    runs: int


def line(x: FloatArray, y: FloatArray, *, smooth: int = 1) -> Line:
    """The rows with both values, smoothed, in order of x; if an x comes twice, the last row counts."""
    there = np.isfinite(x) & np.isfinite(y)
    x, y = x[there], y[there]
    positions, last = np.unique(x[::-1], return_index=True)
    return Line(positions, smoothed(y[::-1][last], smooth))


def smoothed(y: FloatArray, window: int) -> FloatArray:
    """Return the moving average over `window` values around a value, fewer at both ends; 1 changes nothing."""
    if window < 1:
        raise ValueError(f"a window of {window} values")
    sums = np.concatenate([[0.0], np.cumsum(y)])
    at = np.arange(len(y))
    begin = np.maximum(at - window // 2, 0)
    end = np.minimum(at + (window - 1) // 2 + 1, len(y))
    return y if window == 1 else (sums[end] - sums[begin]) / (end - begin)


def combined(label: str, lines: Sequence[Line], estimator: Estimator = "mean") -> Curve:
    """Combine lines with different positions into one curve.

    Values between the positions of a line are interpolated. Before its first and after its last position a line has no
    value: a run that ended early neither counts further on nor shortens the curve. A line that ends (or begins) within
    SAME_END of the end of all lines keeps its last value until there: the last rows of runs of the same length are
    rarely at exactly the same step. The band is one standard deviation to both sides of the mean, or the middle half of
    the values for the median; max and min have no band.
    """
    lines = [one for one in lines if len(one.x)]
    x = _positions(lines)
    values = np.array([_at(x, one) for one in lines])
    count = np.isfinite(values).sum(axis=0).astype(np.float64)
    with warnings.catch_warnings():  # numpy warns about positions without a value, which become nan
        warnings.simplefilter("ignore", RuntimeWarning)
        y, low, high = _estimated(values, estimator)
    alone = count < 2
    low[alone] = high[alone] = np.nan
    return Curve(label, x, y, low, high, count, len(lines))


def _at(x: FloatArray, one: Line) -> FloatArray:
    """Return the values of a line at positions that cover all lines."""
    near = SAME_END * (x[-1] - x[0])
    left = one.y[0] if one.x[0] - x[0] <= near else np.nan
    right = one.y[-1] if x[-1] - one.x[-1] <= near else np.nan
    values: FloatArray = np.interp(x, one.x, one.y, left=left, right=right)
    return values


def _positions(lines: Sequence[Line]) -> FloatArray:
    """Return all positions of all lines; if too many, MAX_POSITIONS evenly spaced positions."""
    together: FloatArray = np.concatenate([one.x for one in lines])
    union: FloatArray = np.unique(together)
    if len(union) > MAX_POSITIONS:
        return np.linspace(float(union[0]), float(union[-1]), MAX_POSITIONS)
    return union


def _estimated(values: FloatArray, estimator: Estimator) -> tuple[FloatArray, FloatArray, FloatArray]:
    nothing = np.full(values.shape[1], np.nan)
    if estimator == "mean":
        mean, std = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
        return mean, mean - std, mean + std
    if estimator == "median":
        low, median, high = np.nanpercentile(values, [25, 50, 75], axis=0)
        return median, low, high
    reduce = np.nanmax if estimator == "max" else np.nanmin
    return reduce(values, axis=0), nothing, nothing.copy()
