"""A table of any length is shown by few rows that keep its extremes, and is read on as it grows."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from remuda.page.growing import MOST_BUCKETS, ProgressReader


def table(path: Path, rows: list[tuple[object, ...]], header: str = "TotalEnvInteracts\tLossQ\tTime") -> None:
    path.write_text("\n".join([header, *("\t".join(map(str, row)) for row in rows)]) + "\n")


def losses(reader: ProgressReader) -> list[float]:
    at = 3 * reader.names.index("LossQ")
    values: list[float] = reader.table.buckets()[:, at].tolist()
    return values


def test_it_reads_on_and_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "progress.txt"
    table(path, [(0, 1.0, 0.0)])
    reader = ProgressReader(path)
    assert reader.read()
    with path.open("a") as file:
        file.write("100\t2.0\t1.0\n200\t3.")
    assert reader.read()
    assert losses(reader) == [1.0, 2.0]
    with path.open("a") as file:
        file.write("5\t2.0\n")
    assert reader.read()
    assert losses(reader) == [1.0, 2.0, 3.5]


@pytest.mark.parametrize("rows", [MOST_BUCKETS, 5 * MOST_BUCKETS + 3])
def test_a_long_table_keeps_its_extremes(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "progress.txt"
    values = [math.sin(row / 50) for row in range(rows)]
    values[rows // 3], values[rows // 2] = 50.0, -50.0
    table(path, [(row, value, row) for row, value in enumerate(values)])
    reader = ProgressReader(path)
    assert reader.read()
    buckets = reader.table.buckets(100)
    at = 3 * reader.names.index("LossQ")
    assert len(buckets) <= 100
    assert (buckets[:, at + 1].min(), buckets[:, at + 2].max()) == (-50.0, 50.0)
    assert reader.table.rows == rows


@pytest.mark.parametrize("change", ["replaced", "cut", "cut and grown", "removed"])
def test_another_file_in_its_place_is_read_from_its_beginning(tmp_path: Path, change: str) -> None:
    path = tmp_path / "progress.txt"
    table(path, [(step, 1.0, 0.0) for step in range(10)])
    reader = ProgressReader(path)
    reader.read()
    if change == "removed":
        path.unlink()
    else:
        if change == "replaced":
            path.rename(tmp_path / "old")
        rows = 3 if change == "cut" else 30
        table(path, [(step, 7.0, 0.0) for step in range(rows)])
    assert reader.read()
    assert reader.names == (() if change == "removed" else ("TotalEnvInteracts", "LossQ", "Time"))
    if change != "removed":
        assert set(losses(reader)) == {7.0}


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("", 0),
        ("no end", 0),
        ("a\ta\n1\t2\n", 0),
        ("LossQ\n", 0),
        ("LossQ\tb\n1\n2\t3\t4\n5\t6\n\n", 1),
        ("LossQ\tb\nx\t1\n", 1),
        ("LossQ\tb\n\t1\n", 1),
        ("LossQ\n" + "9" * 3_000_000 + "\n1\n", 0),
    ],
)
def test_what_is_no_table_is_no_error(tmp_path: Path, content: str, rows: int) -> None:
    path = tmp_path / "progress.txt"
    path.write_text(content)
    reader = ProgressReader(path)
    reader.read()
    assert reader.table.rows == rows
    reader.sample(10)
