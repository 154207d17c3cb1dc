"""The table of a curve: every value of every run, however long the files, and no cell that reads as another one."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from remuda.logbook.series import Moment
from remuda.page.curves import HEADER, Quantity, csv_pieces
from remuda.storage.run_folder import RunFolder
from remuda.tests.page.folders import evaluation, interval, logged, run_folder, write_progress, write_series


def table(quantity: str, *folders: tuple[str, RunFolder]) -> list[list[str]]:
    text = b"".join(csv_pieces(folders, Quantity(quantity, "env_step"))).decode()
    head, *rows = csv.reader(text.splitlines(keepends=True))
    assert head == [*HEADER] == ["run", "env_step", "train_iter", "wall_s", "value"]
    return rows


def test_every_evaluation_and_interval_has_a_row(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    moments: list[Moment] = [
        evaluation(60.0, 0.1 + 0.2),
        interval(60.0),
        evaluation(120.0, None),
        evaluation(180.0, 3.0),
        logged(190.0, loss=0.25),
    ]
    write_series(folder, moments)
    none = run_folder(tmp_path / "runs", "b")
    name = 'x,"y'
    assert table("evaluation/return_mean", ("a", folder), ("b", none), (name, folder)) == [
        ["a", "480", "30", "60.0", "0.30000000000000004"],
        ["a", "1440", "90", "180.0", "3.0"],
        [name, "480", "30", "60.0", "0.30000000000000004"],
        [name, "1440", "90", "180.0", "3.0"],
    ]
    assert table("callback/loss", ("a", folder)) == [["a", "1520", "95", "190.0", "0.25"]]
    assert table("interval/policy_lag", ("a", folder)) == [["a", "480", "30", "60.0", "2"]]


def test_nothing_of_a_long_file_is_thinned(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    write_series(folder, [evaluation(float(n), float(n)) for n in range(5_000)])
    assert [float(row[-1]) for row in table("evaluation/return_mean", ("a", folder))] == [*map(float, range(5_000))]
    write_progress(folder, [(n, n / 3, 0.5 * n) for n in range(40_000)])
    rows = table("progress/LossQ", ("a", folder))
    assert rows == [["a", str(n), "", str(0.5 * n), str(n / 3)] for n in range(40_000)]
    assert len([*csv_pieces([("a", folder)], Quantity("progress/LossQ", "env_step"))]) > 3, "it comes in pieces"


def test_rows_that_are_torn_or_hold_no_number_are_left_out(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    folder.progress.write_text(
        "TotalEnvInteracts\tLossQ\tTime\n0\t\t0\n1\tname\t1\n2\t5\n3\tnan\t3\n4\t-7e3\t4\n5\t8\t"
    )
    assert table("progress/LossQ", ("a", folder)) == [["a", "4", "", "4", "-7e3"]]
    assert table("progress/Other", ("a", folder)) == []
    folder.progress.write_text("LossQ\n1\n")
    assert table("progress/LossQ", ("a", folder)) == [["a", "", "", "", "1"]]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    folder.progress.symlink_to(folder.config_json)
    with pytest.raises(OSError, match="symbolic"):
        table("progress/LossQ", ("a", folder))
