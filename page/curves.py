"""Learning curves of one or many runs, thinned: each run by itself, and runs that differ only in the seed together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from remuda.page.library import Library
from remuda.page.numbers import listed
from remuda.page.progress_reader import X_COLUMNS, ProgressReader
from remuda.page.pyramid import FloatArray
from remuda.page.run_ids import UnknownRunError
from remuda.page.series_reader import (
    EVALUATION_NAMES,
    INTERVAL_NAMES,
    INTERVAL_VALUES,
    INTERVAL_X,
    X_NAMES,
    SeriesReader,
)
from remuda.page.stored_run import StoredRun
from remuda.plotting.curves import combined, line

SOURCES = ("evaluation", "interval", "progress")
_EVALUATION_VALUES = len(X_NAMES)


class UnknownCurveError(Exception):
    """There is no such quantity, or it has no such axis."""


class RunCurve(Struct, frozen=True, kw_only=True):
    """One run: lists of equal length, an element per bucket."""

    run: str
    name: str
    seed: int | None
    group: str
    rows: int = 0
    """Records or lines that were read."""
    read: float = 1.0
    """The share of the file that was read."""
    exact: bool = True
    """No sample: nothing lies between the least and the largest values shown."""
    x: list[float | None]
    last: list[float | None]
    min: list[float | None]
    max: list[float | None]
    error: str | None = None


class GroupCurve(Struct, frozen=True, kw_only=True):
    """Several runs that differ only in the seed: their mean, and one standard deviation to both sides."""

    group: str
    runs: list[str]
    x: list[float | None]
    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]
    count: list[float | None]


class Curves(Struct, frozen=True):
    """The whole view."""

    x: str
    y: str
    runs: list[RunCurve]
    groups: list[GroupCurve]


class Quantity:
    """A quantity as a request names it: `evaluation/return_mean`, `interval/env_steps_per_s`, `progress/LossQ`."""

    def __init__(self, y: str, x: str) -> None:
        """Raises UnknownCurveError."""
        self.y, self.x = y, x
        self.source, _, self.name = y.partition("/")
        names = {"evaluation": EVALUATION_NAMES, "interval": INTERVAL_NAMES}
        if self.source not in SOURCES or (self.source in names and self.name not in names[self.source]):
            raise UnknownCurveError(f"{y[:100]!r} is no quantity: evaluation/return_mean, interval/…, progress/…")
        if x not in X_NAMES:
            raise UnknownCurveError(f"{x[:100]!r} is no axis: {', '.join(X_NAMES)}")
        if self.source == "progress" and x not in X_COLUMNS:
            raise UnknownCurveError(f"progress.txt has no column for {x}: take {' or '.join(X_COLUMNS)}")


def curves(
    library: Library, runs: Sequence[StoredRun], quantity: Quantity, *, points: int, budget: Callable[[], bool]
) -> Curves:
    """The curves of these runs, in at most `points` buckets each. A file that is not read within the budget is shown by
    a sample of its rows until the library has read it."""
    with library.first():
        found = [_curve(library, run, quantity, points, budget) for run in runs]
        return Curves(quantity.x, quantity.y, found, _together(found))


def _curve(library: Library, run: StoredRun, quantity: Quantity, points: int, budget: Callable[[], bool]) -> RunCurve:
    try:
        if quantity.source == "progress":
            with library.progress(run.run, budget, in_part=False) as table:
                rows, exact = _of_progress(table, quantity, points)
                return _run_curve(run, rows, table.table.rows, table.read_share, exact=exact)
        with library.series(run.run, budget, in_part=False) as series:
            pyramid = series.evaluations if quantity.source == "evaluation" else series.intervals
            rows = _of_series(series, quantity, points)
            return _run_curve(run, rows, pyramid.rows, series.read_share, exact=series.read_share >= 1.0)
    except (OSError, UnknownRunError) as error:
        return _run_curve(run, np.empty((0, 4)), 0, 0.0, exact=True, error=str(error))


def _of_series(series: SeriesReader, quantity: Quantity, points: int) -> FloatArray:
    """float64 [n, 4]: x, last, min, max."""
    exact = series.read_share >= 1.0
    if quantity.source == "evaluation":
        x, at = X_NAMES.index(quantity.x), _EVALUATION_VALUES + 3 * EVALUATION_NAMES.index(quantity.name)
        rows = series.evaluations.buckets(points) if exact else series.sample_evaluations(points)
    else:
        x, at = INTERVAL_X + X_NAMES.index(quantity.x), INTERVAL_VALUES + 3 * INTERVAL_NAMES.index(quantity.name)
        rows = series.intervals.buckets(points) if exact else series.sample_intervals(points)
    return rows[:, [x, at, at + 1, at + 2]]


def _of_progress(table: ProgressReader, quantity: Quantity, points: int) -> tuple[FloatArray, bool]:
    """float64 [n, 4] as above, and whether no row was left out."""
    x_name = X_COLUMNS[quantity.x]
    if quantity.name not in table.names or x_name not in table.names:
        return np.empty((0, 4)), True
    x, at = 3 * table.names.index(x_name), 3 * table.names.index(quantity.name)
    exact = table.read_share >= 1.0
    rows = table.table.buckets(points) if exact else table.bucketed(table.sample(points))
    return rows[:, [x, at, at + 1, at + 2]], exact


def _run_curve(
    run: StoredRun, rows: FloatArray, count: int, share: float, *, exact: bool, error: str | None = None
) -> RunCurve:
    rows = rows[np.isfinite(rows[:, :2]).all(axis=1)]
    x, last, least, most = (listed(rows[:, at]) for at in range(4))
    return RunCurve(
        run=run.run,
        name=run.name,
        seed=run.seed,
        group=run.group,
        rows=count,
        read=share,
        exact=exact,
        x=x,
        last=last,
        min=least,
        max=most,
        error=error,
    )


def _together(found: Sequence[RunCurve]) -> list[GroupCurve]:
    groups: dict[str, list[RunCurve]] = {}
    for curve in found:
        if curve.x:
            groups.setdefault(curve.group, []).append(curve)
    return [_group(name, members) for name, members in groups.items() if len(members) > 1]


def _group(name: str, members: Sequence[RunCurve]) -> GroupCurve:
    curve = combined(name, [line(np.array(each.x, np.float64), np.array(each.last, np.float64)) for each in members])
    return GroupCurve(
        group=name,
        runs=[member.run for member in members],
        x=listed(curve.x),
        mean=listed(curve.y),
        low=listed(curve.low),
        high=listed(curve.high),
        count=listed(curve.count),
    )
