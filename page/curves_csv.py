"""All values of a quantity as a CSV table, read piece by piece from the files of the runs: nothing is thinned."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Iterator, Sequence

from remuda.logbook.series import Begin, Evaluation, Interval, Logged, Moment
from remuda.page.curves import Quantity
from remuda.page.progress_reader import X_COLUMNS
from remuda.page.series_reader import records_at
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import open_regular

HEADER = ("run", "env_step", "train_iter", "wall_s", "value")
_BLOCK_BYTES = 256 << 10
_LONGEST_LINE_BYTES = 1 << 20
_Row = Sequence[object]


def csv_pieces(runs: Sequence[tuple[str, RunFolder]], quantity: Quantity) -> Iterator[bytes]:
    """Yields the header, and a row for each value of each run, in the order of the file. A missing value has no row. A
    counter that the file lacks is an empty cell. A run without the file has no rows. Raises OSError."""
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
    """The row of a record that has a value of this quantity."""
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
    """Copies the cells as they stand in the table."""
    with open_regular(folder.progress, follow_link=False) as file:
        names = _header(os.pread(file.fileno(), _BLOCK_BYTES, 0))
        if quantity.name not in names:
            return
        at = names.index(quantity.name)
        step, wall = (names.index(name) if name in names else None for name in X_COLUMNS.values())
        for lines in _lines(file.fileno()):
            cells = [line.split("\t") for line in lines]
            yield [
                (_cell(row, step), "", _cell(row, wall), row[at])
                for row in cells
                if len(row) == len(names) and _is_number(row[at])
            ]


def _header(start: bytes) -> list[str]:
    return start.partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r").split("\t")


def _lines(descriptor: int) -> Iterator[list[str]]:
    """Yields the whole lines below the header, block by block, without an unfinished last line."""
    offset, rest, is_first = 0, b"", True
    while block := os.pread(descriptor, _BLOCK_BYTES, offset):
        offset += len(block)
        *lines, rest = (rest + block).split(b"\n")
        if len(rest) > _LONGEST_LINE_BYTES:
            return  # this is no table
        yield [line.decode("utf-8", "replace").rstrip("\r") for line in lines[is_first:]]
        is_first = is_first and not lines


def _cell(row: Sequence[str], at: int | None) -> str:
    return "" if at is None else row[at]


def _is_number(cell: str) -> bool:
    try:
        return not math.isnan(float(cell))
    except ValueError:
        return False
