"""The content of a picture: a panel per quantity, a curve per group of runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from remuda.plotting.curves import Curve, Estimator, combined, line
from remuda.plotting.errors import PlotError
from remuda.plotting.groups import Group
from remuda.plotting.progress_table import FloatArray
from remuda.plotting.runs import Run

ENV_STEP = "TotalEnvInteracts"
PERFORMANCE = "Performance"
"""Means the mean return of evaluations if every run has evaluations, else that of training episodes."""
_EVALUATION, _TRAINING = "AverageTestEpRet", "AverageEpRet"
_EVALUATED_AT = "TestEnvInteracts"
_OF_EVALUATIONS = re.compile(r"(Average|Std|Max|Min|Median)Test\w+|TestEpLen")


@dataclass(frozen=True)
class Axes:
    """The columns of both axes, and how the runs of a group are combined."""

    x: str = ENV_STEP
    y: Sequence[str] = (PERFORMANCE,)
    smooth: int = 1
    """Rows of a run that are averaged before the runs are combined."""
    estimator: Estimator = "mean"


@dataclass(frozen=True)
class Panel:
    """One quantity."""

    x: str
    y: str
    curves: tuple[Curve, ...]
    missing: tuple[Run, ...]
    """Runs without a value yet, which are in no curve."""


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
        lines = {run.root: line(_positions(run, axes.x, y), run.columns[y], smooth=axes.smooth) for run in group.runs}
        missing += [run for run in group.runs if not len(lines[run.root].x)]
        if any(len(one.x) for one in lines.values()):
            curves.append(combined(group.label, list(lines.values()), axes.estimator))
    if not curves:
        raise PlotError(f"{y} has no value over {axes.x} yet in {', '.join(str(run.root) for run in missing)}")
    return Panel(axes.x, y, tuple(curves), tuple(missing))


def _positions(run: Run, x: str, y: str) -> FloatArray:
    """The x of the values of y. For evaluations this is the step at which the checkpoint was saved, which may be before
    the row; tables of other programs, and older ones, do not have it."""
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
