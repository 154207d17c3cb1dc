"""Curves of groups of runs, and the panels of a picture."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

import numpy as np
from pydantic import JsonValue

from remuda.client.plots.runs import FloatArray, PlotError, Run

Estimator = Literal["mean", "median", "max", "min"]

MAX_POSITIONS = 1_000
"""Limit for the positions of a curve: more than the columns of dots in a picture."""
SAME_END = 0.02
"""Share of the whole range: ends of lines within this distance count as equal."""


@dataclass(frozen=True)
class Line:
    """Values of a run, all finite; x rises strictly."""

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


@dataclass(frozen=True)
class Group:
    """Runs to be averaged, with the label of their curve."""

    label: str
    runs: tuple[Run, ...]


def by_settings(runs: Sequence[Run]) -> list[Group]:
    """Group runs that differ in the seed alone. Labels of groups with the same name have the settings that differ."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.name, json.dumps(run.settings, sort_keys=True)), []).append(run)
    named: dict[str, list[Run]] = {}
    for (name, _), members in groups.items():
        named.setdefault(name, []).append(members[0])
    differ = {name: differing([one.settings for one in members]) for name, members in named.items()}
    return [
        Group(name + _difference(members[0], differ[name]), tuple(members)) for (name, _), members in groups.items()
    ]


def by_legend(runs: Sequence[Run], legend: Sequence[str], folders: int) -> list[Group]:
    """Group runs by the given folders and their labels; folders with the same label form one group. Raises PlotError
    unless the numbers of labels and folders are equal."""
    if len(legend) != folders:
        raise PlotError(f"there are {len(legend)} --legend for {folders} folders: give one for each folder")
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(legend[run.folder_index], []).append(run)
    return [Group(label, tuple(members)) for label, members in groups.items()]


def one_by_one(runs: Sequence[Run]) -> list[Group]:
    """Return a group per run; the label is the shortest unique end of the run's path."""
    paths = [run.root.resolve().parts for run in runs]
    for length in range(1, max(map(len, paths), default=0) + 1):
        labels = ["/".join(parts[-length:]) for parts in paths]
        if len(set(labels)) == len(labels):
            break
    else:
        labels = []
    return [Group(label, (run,)) for label, run in zip(labels, runs, strict=True)]


def differing(settings: Sequence[Mapping[str, JsonValue]]) -> list[str]:
    """Return the settings that differ between runs, or are missing in some, in order of first appearance."""
    first, keys = settings[0], dict.fromkeys(key for each in settings for key in each)
    return [
        key for key in keys if any((key in one) != (key in first) or one.get(key) != first.get(key) for one in settings)
    ]


def _difference(run: Run, differ: Collection[str]) -> str:
    """Return the settings that distinguish a run from runs with the same name, for its label."""
    values = {_short(key, run): value for key, value in run.settings.items() if key in differ}
    shown = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items())
    return f" ({', '.join(shown)})" if values else ""


def _short(key: str, run: Run) -> str:
    """Return the last part of a key, if unique among all keys; else the whole key."""
    last = key.rpartition(".")[2]
    return last if sum(one.rpartition(".")[2] == last for one in run.settings) == 1 else key


ENV_STEP = "TotalEnvInteracts"
PERFORMANCE = "Performance"
"""Stands for the mean return of evaluations if every run has evaluations, else of training episodes."""
_EVALUATION, _TRAINING = "AverageTestEpRet", "AverageEpRet"
_EVALUATED_AT = "TestEnvInteracts"
_OF_EVALUATIONS = re.compile(r"(Average|Std|Max|Min|Median)Test\w+|TestEpLen")


@dataclass(frozen=True)
class Axes:
    """The columns of both axes, and how the runs of a group are combined."""

    x: str = ENV_STEP
    y: Sequence[str] = (PERFORMANCE,)
    smooth: int = 1
    """Rows of a run to average before combining the runs."""
    estimator: Estimator = "mean"


@dataclass(frozen=True)
class Panel:
    """A panel for a quantity."""

    x: str
    y: str
    curves: tuple[Curve, ...]
    missing: tuple[Run, ...]
    """Runs without a value yet, missing in the curves."""


def make_panels(groups: Sequence[Group], axes: Axes) -> list[Panel]:
    """Make a panel per column. Raises PlotError if a run does not have a column, or if no run has a value."""
    runs = [run for group in groups for run in group.runs]
    columns = [_performance(runs) if name == PERFORMANCE else name for name in axes.y]
    for run in runs:
        for name in (axes.x, *columns):
            _check_column(run, name)
    return [_panel(groups, column, axes) for column in dict.fromkeys(columns)]


def _panel(groups: Sequence[Group], y: str, axes: Axes) -> Panel:
    curves: list[Curve] = []
    missing: list[Run] = []
    for group in groups:
        lines = {run.root: line(_x_values(run, axes.x, y), run.columns[y], smooth=axes.smooth) for run in group.runs}
        missing += [run for run in group.runs if not len(lines[run.root].x)]
        if any(len(one.x) for one in lines.values()):
            curves.append(combined(group.label, list(lines.values()), axes.estimator))
    if not curves:
        raise PlotError(f"{y} has no value over {axes.x} yet in {', '.join(str(run.root) for run in missing)}")
    return Panel(axes.x, y, tuple(curves), tuple(missing))


def _x_values(run: Run, x: str, y: str) -> FloatArray:
    """Return the x positions of the values of y. For evaluations this is the step of the saved checkpoint, at or before
    the row; tables of other programs, and older tables, do not have this step."""
    if x == ENV_STEP and _OF_EVALUATIONS.fullmatch(y) and _EVALUATED_AT in run.columns:
        return run.columns[_EVALUATED_AT]
    return run.columns[x]


def _performance(runs: Sequence[Run]) -> str:
    """The column for PERFORMANCE, the same for all runs: returns with and without exploration cannot be compared."""
    evaluated = all(_EVALUATION in run.columns and np.isfinite(run.columns[_EVALUATION]).any() for run in runs)
    return _EVALUATION if evaluated else _TRAINING


def _check_column(run: Run, name: str) -> None:
    if name in run.columns:
        return
    near = get_close_matches(name, run.columns, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    known = ", ".join(run.columns)
    raise PlotError(f"{run.root / 'progress.txt'} has no column {name}; {meant}There are: {known}, {PERFORMANCE}")
