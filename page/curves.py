"""Learning curves of runs, thinned for a chart or whole as a CSV table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from msgspec import Struct

from remuda.client.plots.curves import combined, line
from remuda.logbook.series import Begin, Evaluation, Interval, Logged, Moment
from remuda.page.growing import X_COLUMNS, FloatArray, Pyramid, listed
from remuda.page.library import Library
from remuda.page.run_ids import UnknownRunError
from remuda.page.series_reader import (
    EVALUATION_NAMES,
    INTERVAL_NAMES,
    INTERVAL_VALUES,
    INTERVAL_X,
    X_NAMES,
    records_at,
)
from remuda.page.stored_runs import StoredRun
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import open_regular

SOURCES = ("evaluation", "interval", "progress", "callback")
_EVALUATION_VALUES = len(X_NAMES)
HEADER = ("run", "env_step", "train_iter", "wall_s", "value")
_BLOCK_BYTES = 256 << 10
_LONGEST_LINE_BYTES = 1 << 20
_LINES = 4_096
"""Per piece of the CSV table."""
_Row = Sequence[object]


class UnknownCurveError(Exception):
    """Unknown quantity, or unknown axis of a quantity."""


class Mark(Struct, frozen=True):
    """Moment of an event in a run."""

    text: str
    env_step: int
    train_iter: int
    wall_s: float


class RunCurve(Struct, frozen=True, kw_only=True):
    """A run: lists of equal length, an element per bucket."""

    run: str
    name: str
    seed: int | None
    group: str
    rows: int = 0
    """Records or lines read."""
    read: float = 1.0
    """Share of the file read."""
    exact: bool = True
    """No sample: nothing lies between the least and the largest values shown."""
    x: list[float | None]
    last: list[float | None]
    min: list[float | None]
    max: list[float | None]
    marks: list[Mark] = []
    error: str | None = None


class GroupCurve(Struct, frozen=True, kw_only=True):
    """Several runs with different seeds: mean, and a standard deviation to both sides."""

    group: str
    runs: list[str]
    x: list[float | None]
    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]
    count: list[float | None]


class Curves(Struct, frozen=True):
    """A quantity of all runs."""

    y: str
    runs: list[RunCurve]
    groups: list[GroupCurve]
    error: str | None = None
    """Reason for a missing curve over this axis."""


class Charts(Struct, frozen=True):
    """The view: a chart for each quantity, in the order of the request."""

    x: str
    charts: list[Curves]


class Quantity:
    """Name of a quantity in a request: `evaluation/return_mean`, `interval/env_steps_per_s`, `progress/LossQ`,
    `callback/newest_mean`."""

    def __init__(self, y: str, x: str) -> None:
        """Raises UnknownCurveError."""
        self.y, self.x = y, x
        self.source, _, self.name = y.partition("/")
        names = {"evaluation": EVALUATION_NAMES, "interval": INTERVAL_NAMES}
        if self.source not in SOURCES or (self.source in names and self.name not in names[self.source]):
            raise UnknownCurveError(
                f"{y[:100]!r} is no quantity: evaluation/return_mean, interval/…, progress/…, callback/…"
            )
        if x not in X_NAMES:
            raise UnknownCurveError(f"{x[:100]!r} is no axis: {', '.join(X_NAMES)}")

    @property
    def table(self) -> str:
        """Name of the source rows: numbers of callbacks have separate rows."""
        return self.y if self.source == "callback" else self.source

    @property
    def error(self) -> str | None:
        """Reason for a missing curve over this axis; None for an existing curve."""
        if self.source == "progress" and self.x not in X_COLUMNS:
            return f"progress.txt has no column for {self.x}: take {' or '.join(X_COLUMNS)}"
        return None

    def columns(self, names: Sequence[str]) -> list[int] | None:
        """Return the columns of x and of the last, least and largest value in the source rows; None for missing
        columns. `names`: the columns of progress.txt."""
        if self.source == "evaluation":
            x, at = X_NAMES.index(self.x), _EVALUATION_VALUES + 3 * EVALUATION_NAMES.index(self.name)
        elif self.source == "interval":
            x, at = INTERVAL_X + X_NAMES.index(self.x), INTERVAL_VALUES + 3 * INTERVAL_NAMES.index(self.name)
        elif self.source == "callback":
            x, at = X_NAMES.index(self.x), len(X_NAMES)
        else:
            x_name = X_COLUMNS.get(self.x)
            if x_name not in names or self.name not in names:
                return None
            x, at = 3 * names.index(x_name), 3 * names.index(self.name)
        return [x, at, at + 1, at + 2]


@dataclass(frozen=True)
class _Table:
    """Rows of one file of a run, for all quantities of the file."""

    rows: FloatArray
    count: int
    read_share: float
    names: Sequence[str] = ()
    error: str | None = None


def curves(
    library: Library,
    runs: Sequence[StoredRun],
    quantities: Sequence[Quantity],
    *,
    points: int,
    budget: Callable[[], bool],
) -> Charts:
    """Return the curves of these runs, in at most `points` buckets; all quantities have the same x.

    Reads each file once, for all its quantities. A file beyond the budget is shown by a sample of its rows until the
    library has read the file.
    """
    shown = [each for each in quantities if each.error is None]
    found: dict[str, list[RunCurve]] = {each.y: [] for each in quantities}
    with library.first():
        for run in runs:
            tables = {one: _table(library, run.run, one, points, budget) for one in {each.table for each in shown}}
            for each in shown:
                found[each.y].append(_run_curve(run, tables[each.table], each))
        charts = [Curves(each.y, found[each.y], _together(found[each.y]), each.error) for each in quantities]
        return Charts(quantities[0].x, charts)


def _table(library: Library, run: str, source: str, points: int, budget: Callable[[], bool]) -> _Table:
    try:
        if source == "progress":
            with library.progress(run, budget, in_part=False) as progress:
                share, whole = progress.read_share, progress.table
                rows = whole.buckets(points) if share >= 1.0 else progress.bucketed(progress.sample(points))
                return _Table(rows, whole.rows, share, progress.names)
        with library.series(run, budget, in_part=False) as series:
            share = series.read_share
            if source == "evaluation":
                whole, sample = series.evaluations, series.sample_evaluations
            elif source != "interval":
                name = source.partition("/")[2]
                whole, sample = series.logged.get(name, Pyramid(())), partial(series.sample_logged, name)
            else:
                whole, sample = series.intervals, series.sample_intervals
            return _Table(whole.buckets(points) if share >= 1.0 else sample(points), whole.rows, share)
    except (OSError, UnknownRunError) as error:
        return _Table(np.empty((0, 0)), 0, 0.0, error=str(error))


def _run_curve(run: StoredRun, table: _Table, quantity: Quantity) -> RunCurve:
    columns = quantity.columns(table.names) if len(table.rows) else None
    rows = np.empty((0, 4)) if columns is None else table.rows[:, columns]
    rows = rows[np.isfinite(rows[:, :2]).all(axis=1)]
    x, last, least, most = (listed(rows[:, at]) for at in range(4))
    return RunCurve(
        run=run.run,
        name=run.name,
        seed=run.seed,
        group=run.group,
        rows=table.count,
        read=table.read_share,
        exact=table.read_share >= 1.0 or columns is None,
        x=x,
        last=last,
        min=least,
        max=most,
        marks=[Mark("another task", task.env_step, task.train_iter, task.wall_s) for task in run.tasks[1:]],
        error=table.error,
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


def csv_pieces(runs: Sequence[tuple[str, RunFolder]], quantity: Quantity) -> Generator[bytes]:
    """Yield the header, and a row for each value of each run, in the order of the file. Missing values have no row,
    missing counters an empty cell. A run without the file has no rows. Raises OSError."""
    yield _text([HEADER])
    for run, folder in runs:
        blocks = _of_progress(folder, quantity) if quantity.source == "progress" else _of_series(folder, quantity)
        try:
            for rows in blocks:
                if rows:
                    yield _text((run, *row) for row in rows)
        except FileNotFoundError:
            continue


def _text(rows: Iterable[_Row]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def _of_series(folder: RunFolder, quantity: Quantity) -> Iterator[list[_Row]]:
    offset, done = 0, False
    with open_regular(folder.series, follow_link=False) as file:
        while not done:
            records, length, done = records_at(file.fileno(), offset)
            offset += length
            yield [row for each in records if (row := _row(each, quantity)) is not None]


def _row(record: Begin | Moment, quantity: Quantity) -> _Row | None:
    """Return the row of a record with a value of this quantity, or None."""
    match record:
        case Evaluation() if quantity.source == "evaluation":
            value: float | None = getattr(record, quantity.name)
        case Interval() if quantity.source == "interval":
            value = getattr(record, quantity.name)
        case Logged() if quantity.source == "callback":
            value = record.numbers.get(quantity.name)
        case _:
            return None
    if value is None or math.isnan(value):
        return None
    return (record.env_step, record.train_iter, record.wall_s, value)


def _of_progress(folder: RunFolder, quantity: Quantity) -> Iterator[list[_Row]]:
    """Yield copies of the cells in the table, without an unfinished last line."""
    with open_regular(folder.progress, follow_link=False) as raw, io.BufferedReader(raw, _BLOCK_BYTES) as file:
        lines = iter(partial(file.readline, _LONGEST_LINE_BYTES), b"")
        names = _cells(next(lines, b""))
        if quantity.name not in names:
            return
        at = names.index(quantity.name)
        step, wall = (names.index(name) if name in names else None for name in X_COLUMNS.values())
        while block := list(islice(lines, _LINES)):
            rows = [_cells(line) for line in block if line.endswith(b"\n")]
            yield [
                (_cell(row, step), "", _cell(row, wall), row[at])
                for row in rows
                if len(row) == len(names) and _is_number(row[at])
            ]


def _cells(line: bytes) -> list[str]:
    return line.decode("utf-8", "replace").rstrip("\r\n").split("\t")


def _cell(row: Sequence[str], at: int | None) -> str:
    return "" if at is None else row[at]


def _is_number(cell: str) -> bool:
    try:
        return not math.isnan(float(cell))
    except ValueError:
        return False
