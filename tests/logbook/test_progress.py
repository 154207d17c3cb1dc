"""progress.txt is a table for pandas and numpy, with one header and no doubled row; rounds reach the budget."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.logbook.progress import ProgressColumns, ProgressFile, ProgressRow, Rounds

HEADER = (
    "Epoch\tAverageEpRet\tStdEpRet\tMaxEpRet\tMinEpRet\tAverageTestEpRet\tStdTestEpRet\tMaxTestEpRet\tMinTestEpRet\t"
    "EpLen\tTestEpLen\tTotalEnvInteracts\tLossQ\tMedianEpRet\tMedianTestEpRet\tTestEnvInteracts\tTime\n"
)


def row(epoch: int) -> ProgressRow:
    return ProgressRow(
        epoch=epoch,
        env_step=1_000 * epoch,
        returns=[9.0, 11.0],
        lengths=[30, 50],
        losses={"LossQ": 0.5, "other": 3.0},
        wall_s=2.5 * epoch,
    )


def write(path: Path, *epochs: int, resumed: int | None = None) -> None:
    file = ProgressFile(path, ProgressColumns(["LossQ"]), resumed_env_step=resumed)
    for epoch in epochs:
        file.row(row(epoch))
    file.close()


def epochs(path: Path) -> list[int]:
    return [int(line.split("\t")[0]) for line in path.read_text().splitlines()[1:]]


def test_the_file_to_the_letter(tmp_path: Path) -> None:
    write(tmp_path / "p", 1)
    assert (tmp_path / "p").read_text() == (
        HEADER + "1\t10.0\t1.0\t11.0\t9.0\tnan\tnan\tnan\tnan\t40.0\tnan\t1000\t0.5\t10.0\tnan\tnan\t2.5\n"
    )


def test_what_the_environment_reports_has_columns_of_its_own(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path / "p", ProgressColumns(["LossQ"], episode_info=["boxes_pushed", "won"]))
    info = {"boxes_pushed": [1.0, 2.0, 6.0], "won": []}
    file.row(ProgressRow(epoch=0, env_step=8, losses={"LossQ": 0.5}, wall_s=1.0, info=info, test_info={"won": [1.0]}))
    file.row(ProgressRow(epoch=1, env_step=9, losses={"LossQ": 0.5}, wall_s=1.0))
    file.close()
    header, first, second = (line.split("\t") for line in (tmp_path / "p").read_text().splitlines())
    statistics, names = ("Average", "Std", "Max", "Min", "Median"), ("BoxesPushed", "Won", "TestBoxesPushed", "TestWon")
    assert header[header.index("TestEnvInteracts") + 1 :] == [
        *(f"{s}{name}" for name in names for s in statistics),
        "Time",
    ]
    row = dict(zip(header, map(float, first), strict=True))
    assert [row[f"{s}BoxesPushed"] for s in statistics] == [3.0, pytest.approx(math.sqrt(14 / 3)), 6.0, 1.0, 2.0]
    assert [row[f"{s}TestWon"] for s in statistics] == [1.0, 0.0, 1.0, 1.0, 1.0]
    assert math.isnan(row["AverageWon"])
    assert second[-21:-1] == ["nan"] * 20


def test_a_resumed_run_continues_after_its_step_with_one_header(tmp_path: Path) -> None:
    write(tmp_path / "p", 1, 2, 3, 4)
    write(tmp_path / "p", 3, 4, resumed=2_000)
    assert epochs(tmp_path / "p") == [1, 2, 3, 4]
    assert (tmp_path / "p").read_text().count("Epoch") == 1


def test_without_evaluations_there_are_no_columns_for_them(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path / "p", ProgressColumns(["LossQ"], episode_info=["won"], evaluates=False))
    row = ProgressRow(epoch=0, env_step=100, losses={}, wall_s=1.0, info={"won": [1.0]}, evaluates=False)
    file.row(row)
    file.close()
    header = (tmp_path / "p").read_text().splitlines()[0].split("\t")
    assert not [name for name in header if "Test" in name]
    assert header[:8] == [
        "Epoch",
        "AverageEpRet",
        "StdEpRet",
        "MaxEpRet",
        "MinEpRet",
        "EpLen",
        "TotalEnvInteracts",
        "LossQ",
    ]
    assert header[-1] == "Time"
    assert not [name for name in row.record() if name.startswith("evaluator/")]


def test_the_file_knows_which_row_comes_next_also_where_rows_are_missing(tmp_path: Path) -> None:
    write(tmp_path / "p")
    assert next_epoch(tmp_path / "p") == 0
    write(tmp_path / "p", 1, 2, 7, 8)
    assert next_epoch(tmp_path / "p") == 9
    file = ProgressFile(tmp_path / "p", ProgressColumns(["LossQ"]), resumed_env_step=7_000)
    assert file.next_epoch == 8
    file.row(row(11))
    assert file.next_epoch == 12
    file.close()


def next_epoch(path: Path) -> int:
    file = ProgressFile(path, ProgressColumns(["LossQ"]))
    file.close()
    return file.next_epoch


def test_a_header_left_unfinished_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "p").write_text(HEADER[:20])
    write(tmp_path / "p", 1)
    assert (tmp_path / "p").read_text().startswith(HEADER)
    assert epochs(tmp_path / "p") == [1]


def test_a_file_keeps_the_columns_it_began_with(tmp_path: Path) -> None:
    write(tmp_path / "p", 1)
    file = ProgressFile(tmp_path / "p", ProgressColumns(["LossPi"]))
    file.row(ProgressRow(epoch=2, env_step=2_000, losses={"LossPi": 1.0}, wall_s=1.0))
    file.close()
    header, _, second = (tmp_path / "p").read_text().splitlines()
    assert header + "\n" == HEADER
    assert math.isnan(float(second.split("\t")[-4]))
    assert len(second.split("\t")) == len(header.split("\t"))


def test_a_resumed_run_gets_columns_for_what_its_config_has_added(tmp_path: Path) -> None:
    without = ProgressFile(tmp_path / "p", ProgressColumns(["LossQ"], evaluates=False))
    without.row(ProgressRow(epoch=0, env_step=8, losses={}, wall_s=1.0, evaluates=False))
    without.close()
    file = ProgressFile(tmp_path / "p", ProgressColumns(["LossPi"], episode_info=["won"]))
    file.row(ProgressRow(epoch=1, env_step=9, losses={}, wall_s=2.0, info={"won": [1.0]}, test_returns=[5.0]))
    file.close()
    header, *rows = (line.split("\t") for line in (tmp_path / "p").read_text().splitlines())
    assert [row[header.index("AverageWon")] for row in rows] == ["nan", "1.0"]
    assert [row[header.index("AverageTestEpRet")] for row in rows] == ["nan", "5.0"]
    assert "MedianTestWon" in header
    assert "LossPi" not in header


def test_means_over_collected_steps_have_columns_under_their_own_names(tmp_path: Path) -> None:
    file = ProgressFile(
        tmp_path / "p", ProgressColumns(["LossQ"], episode_info=["won"], collected=["speed_mean", "height"])
    )
    shown = ProgressRow(epoch=0, env_step=8, losses={}, wall_s=1.0, collected={"speed_mean": 2.5, "height": math.nan})
    file.row(shown)
    file.row(ProgressRow(epoch=1, env_step=9, losses={}, wall_s=2.0))
    file.close()
    header, first, second = (line.split("\t") for line in (tmp_path / "p").read_text().splitlines())
    assert header[-4:] == ["MedianTestWon", "speed_mean", "height", "Time"]
    assert (first[-3:], second[-3:]) == (["2.5", "nan", "1.0"], ["nan", "nan", "2.0"])
    assert shown.record()["collector/speed_mean"] == 2.5


@pytest.mark.parametrize(
    ("budget", "interval", "round_env_steps", "per_row", "total"),
    [
        (50_000_000, 1_000, 4 * 1, 250, 12_500_000),  # its first example: T = 4, B = 1
        (1_000, 300, 4 * 16, 4, 16),  # rounded up to a row: 1,024 steps
        (1_000, 10, 64, 1, 16),  # an interval below one round
    ],
)
def test_rounds_are_rlpyts(budget: int, interval: int, round_env_steps: int, per_row: int, total: int) -> None:
    rounds = Rounds.of(budget_env_steps=budget, interval_env_steps=interval, round_env_steps=round_env_steps)
    assert (rounds.env_steps, rounds.per_row, rounds.total) == (round_env_steps, per_row, total)


@given(st.integers(1, 10**7), st.integers(1, 10**6), st.integers(1, 10**4))
def test_the_last_round_is_the_first_row_that_has_reached_the_budget(budget: int, interval: int, size: int) -> None:
    rounds = Rounds.of(budget_env_steps=budget, interval_env_steps=interval, round_env_steps=size)
    assert rounds.total % rounds.per_row == 0
    assert rounds.total * size - rounds.interval_env_steps < budget <= rounds.total * size
    assert rounds.interval_env_steps <= max(interval, size)
    assert interval - rounds.interval_env_steps < size


def test_numpy_reads_it(tmp_path: Path) -> None:
    write(tmp_path / "p", 1, 2, 3)
    table = np.genfromtxt(tmp_path / "p", names=True, delimiter="\t")
    assert table["TotalEnvInteracts"].tolist() == [1_000, 2_000, 3_000]
    assert np.isnan(table["AverageTestEpRet"]).all()
    assert table["Time"].tolist() == [2.5, 5.0, 7.5]


@pytest.mark.parametrize("columns", [["a\tb"], ["LossQ", "LossQ"], ["Time"], [""]])
def test_column_names_that_would_break_the_table_are_refused(tmp_path: Path, columns: list[str]) -> None:
    with pytest.raises(ValueError, match="distinct identifiers"):
        ProgressFile(tmp_path / "p", ProgressColumns(columns))
