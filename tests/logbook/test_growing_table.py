"""A table keeps its columns, takes new ones at its end, and is never torn."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.logbook.tables import Table

NAMES = st.from_regex(r"[a-z_][a-z0-9_./-]{0,8}", fullmatch=True)


def table(path: Path, *columns: str, resumed: int | None = None) -> Table:
    return Table(path, ["env_step", *columns], separator=",", step_column="env_step", resumed_step=resumed)


def read(path: Path) -> list[dict[str, float]]:
    header, *rows = (line.split(",") for line in path.read_text().splitlines())
    return [dict(zip(header, map(float, row), strict=True)) for row in rows]


def test_to_the_letter(tmp_path: Path) -> None:
    written = table(tmp_path / "t", "loss")
    written.append({"env_step": 1, "loss": 0.5, "other": 3.0})
    written.append({"env_step": 2})
    assert (tmp_path / "t").read_text() == "env_step,loss\n1,0.5\n2,nan\n", "on disk at once"
    written.close()


def test_new_columns_come_to_the_end_and_old_rows_have_nan_there(tmp_path: Path) -> None:
    written = table(tmp_path / "t", "loss")
    written.append({"env_step": 1, "loss": 0.5})
    written.widen(["entropy", "kl"])
    written.append({"env_step": 2, "loss": 0.25, "entropy": 1.5})
    assert (tmp_path / "t").read_text() == "env_step,loss,entropy,kl\n1,0.5,nan,nan\n2,0.25,1.5,nan\n"
    assert written.columns == ["env_step", "loss", "entropy", "kl"]
    written.close()


def test_an_empty_table_grows_too(tmp_path: Path) -> None:
    written = table(tmp_path / "t")
    written.widen(["loss"])
    assert (tmp_path / "t").read_text() == "env_step,loss\n"
    written.close()


@pytest.mark.parametrize("columns", [["loss"], ["a", "a"], ["a,b"], ["a\tb"], [""], ["1st"]])
def test_names_that_would_break_it_are_refused_and_nothing_changes(tmp_path: Path, columns: list[str]) -> None:
    written = table(tmp_path / "t", "loss")
    with pytest.raises(ValueError, match="distinct names"):
        written.widen(columns)
    written.append({"env_step": 1, "loss": 0.5})
    assert (tmp_path / "t").read_text() == "env_step,loss\n1,0.5\n"
    written.close()


def test_it_is_continued_under_the_columns_that_it_grew(tmp_path: Path) -> None:
    written = table(tmp_path / "t")
    written.widen(["loss"])
    for step in (1, 2, 3):
        written.append({"env_step": step, "loss": step / 2})
    written.close()
    again = table(tmp_path / "t", resumed=2)
    assert again.columns == ["env_step", "loss"]
    again.append({"env_step": 3, "loss": 9.0})
    again.close()
    assert [row["loss"] for row in read(tmp_path / "t")] == [0.5, 1.0, 9.0]


@settings(deadline=None)  # the disk decides how long it takes
@given(st.lists(st.dictionaries(NAMES, st.floats(allow_nan=False), max_size=4), max_size=8))
def test_whatever_comes_can_be_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, float]]
) -> None:
    path = tmp_path_factory.mktemp("table") / "t"
    written = table(path)
    for step, row in enumerate(rows):
        row["env_step"] = step
        if new := [name for name in row if name not in written.columns]:
            written.widen(new)
        written.append(row)
    written.close()
    found = read(path)
    assert len(found) == len(rows)
    for row, back in zip(rows, found, strict=True):
        assert {name: back[name] for name in row} == row
        assert all(math.isnan(back[name]) for name in back.keys() - row.keys())
