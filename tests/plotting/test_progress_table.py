"""Reading progress.txt as Remuda and others write it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from remuda.logbook.progress import ProgressFile, ProgressRow
from remuda.plotting.errors import PlotError
from remuda.plotting.progress_table import read_progress


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "progress.txt"


def test_what_the_logbook_writes_is_read(path: Path) -> None:
    file = ProgressFile(path, ["LossQ"])
    file.row(ProgressRow(epoch=0, env_step=0, test_returns=[9.0, 11.0], test_lengths=[9, 11], losses={}, wall_s=0.5))
    file.row(ProgressRow(epoch=1, env_step=1_024, returns=[20.0], lengths=[20], losses={"LossQ": 0.25}, wall_s=1.5))
    file.close()
    columns = read_progress(path)
    assert list(columns) == path.read_text().splitlines()[0].split("\t")
    assert columns["TotalEnvInteracts"].tolist() == [0, 1_024]
    np.testing.assert_array_equal(columns["AverageTestEpRet"], [10.0, np.nan])
    np.testing.assert_array_equal(columns["AverageEpRet"], [np.nan, 20.0])
    np.testing.assert_array_equal(columns["LossQ"], [np.nan, 0.25])
    assert all(values.dtype == np.float64 for values in columns.values())


def test_a_line_that_is_being_written_does_not_count(path: Path) -> None:
    path.write_text("A\tB\n1\t2\n3\t4")
    assert read_progress(path)["B"].tolist() == [2]
    path.write_text("A\tB\n")
    assert read_progress(path)["B"].tolist() == []


def test_what_is_no_number_is_nan(path: Path) -> None:
    path.write_text("A\tB\tC\tD\n\tNone\tinf\t1e-3\n")
    values = {name: column[0] for name, column in read_progress(path).items()}
    assert np.isnan(values["A"])
    assert np.isnan(values["B"])
    assert values["C"] == np.inf
    assert values["D"] == 1e-3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "its first line must name each column once"),
        ("A\tB", "its first line must name each column once"),
        ("A\tA\n1\t2\n", "each column once"),
        ("A\tB\n1\t2\n3\n4\t5\n", "progress.txt:3: 1 cells for 2 columns"),
        ("A\tB\n1\t2\t3\n", "progress.txt:2: 3 cells for 2 columns"),
    ],
)
def test_what_is_no_table(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    with pytest.raises(PlotError, match=said.replace(".", r"\.")):
        read_progress(path)


def test_what_cannot_be_read(path: Path) -> None:
    with pytest.raises(PlotError, match="cannot be read"):
        read_progress(path)
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(PlotError, match="cannot be read"):
        read_progress(path)
