"""Readers are kept in bounded memory, and long files are read meanwhile."""

from __future__ import annotations

from pathlib import Path

from remuda.page.library import Budget, Library
from remuda.page.run_ids import RunIds
from remuda.tests.page.folders import run_folder, write_progress
from remuda.tests.patience import until

ROWS = 150_000
"""More than one block."""


def long_run(runs: Path, run: str) -> None:
    write_progress(run_folder(runs, run), [(step, 1.0, 2.0) for step in range(ROWS)])


def test_a_long_file_is_read_to_its_end_meanwhile(tmp_path: Path) -> None:
    long_run(tmp_path / "runs", "a")
    library = Library(RunIds(tmp_path / "runs"))
    try:
        with library.progress("a", Budget(0.0)) as table:
            assert 0 < table.table.rows < ROWS
        until(lambda: library.whole == {"a": 1}, "its end")
        assert table.table.rows == ROWS
    finally:
        library.close()


def test_a_reader_that_is_not_kept_is_not_read_on(tmp_path: Path) -> None:
    for run in ("a", "b"):
        long_run(tmp_path / "runs", run)
    library = Library(RunIds(tmp_path / "runs"), most_bytes=0)
    try:
        with library.progress("a", Budget(0.0)) as first:
            rows = first.table.rows
            with library.progress("b", Budget(0.0)):
                """It takes the place of the first one, of which nothing more is read while it is lent."""
        until(lambda: library.whole == {"b": 1}, "the end of the other")
        assert first.table.rows == rows < ROWS
    finally:
        library.close()
