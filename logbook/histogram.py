"""Histograms: values counted in buckets, put together, and cut to the buckets that hold something."""

from __future__ import annotations

import sys

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from remuda.wire.messages import Histogram

_LARGEST_COUNT = 2**53
"""That a message may say."""


def _finite(value: float) -> float:
    """The same, or the largest number there is where a sum became infinite: messages and journals hold finite ones."""
    return min(max(value, -sys.float_info.max), sys.float_info.max)


def counted(values: NDArray[np.generic], edges: NDArray[np.float64]) -> Histogram:
    """Count values of any shape between `edges` [buckets + 1], ascending. Values beyond the outer edges count in the
    outer buckets; what is no finite number is left out."""
    flat = np.asarray(values, np.float64).reshape(-1)
    flat = flat[np.isfinite(flat)]
    buckets = np.searchsorted(edges, flat, side="right") - 1
    counts = np.bincount(buckets.clip(0, len(edges) - 2), minlength=len(edges) - 1)
    with np.errstate(over="ignore"):
        total, total_squares = float(flat.sum()), float(np.square(flat).sum())
    return Histogram(
        left=float(edges[0]),
        rights=edges[1:].tolist(),
        counts=counts.tolist(),
        total=_finite(total),
        total_squares=_finite(total_squares),
    )


def spread_evenly(values: NDArray[np.generic], buckets: int) -> Histogram | None:
    """Count values in buckets of the same width from the least to the largest; None where none is a finite number."""
    finite = np.asarray(values, np.float64)
    finite = finite[np.isfinite(finite)]
    if not finite.size:
        return None
    least, largest = float(finite.min()), float(finite.max())
    if least == largest:
        least, largest = least - 0.5, largest + 0.5
    return counted(finite, np.linspace(least, largest, buckets + 1))


def put_together(first: Histogram, second: Histogram) -> Histogram:
    """Both histograms' values in one. Raises ValueError where their buckets differ."""
    if (first.left, first.rights) != (second.left, second.rights):
        raise ValueError("histograms of other buckets cannot be put together")
    return replace(
        first,
        counts=[min(a + b, _LARGEST_COUNT) for a, b in zip(first.counts, second.counts, strict=True)],
        total=_finite(first.total + second.total),
        total_squares=_finite(first.total_squares + second.total_squares),
    )


def trimmed(histogram: Histogram) -> Histogram:
    """Without the empty buckets at both ends; as it is where all are empty."""
    filled = [bucket for bucket, count in enumerate(histogram.counts) if count]
    if not filled:
        return histogram
    first, end = filled[0], filled[-1] + 1
    return replace(
        histogram,
        left=histogram.rights[first - 1] if first else histogram.left,
        rights=histogram.rights[first:end],
        counts=histogram.counts[first:end],
    )
