"""Which folders are meant, which runs are in them, and what each is called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from remuda.client.plots.runs import PlotError, expand, find_runs, read_progress
from remuda.logbook.progress import ProgressColumns, ProgressFile, ProgressRow
from remuda.tests.client.plots.folders import make_run, ours, points

ROWS = points((0, 9.0), (1_000, 20.0))


def names(folders: Sequence[Path]) -> list[str]:
    return [folder.name for folder in folders]


def test_a_folder_that_is_there_is_meant_itself_and_else_all_that_hold_its_name(tmp_path: Path) -> None:
    for name in ("ppo", "ppo_long", "dqn_s1", "dqn_s10", "dqn_s2"):
        make_run(tmp_path / name, ROWS)
    (tmp_path / "ppo.txt").write_text("not a folder")
    assert names(expand([str(tmp_path / "ppo")])) == ["ppo"]
    assert names(expand([str(tmp_path / "ppo") + "/"])) == ["ppo"]
    assert names(expand([str(tmp_path / "pp")])) == ["ppo", "ppo_long"]
    assert names(expand([str(tmp_path / "_s")])) == ["dqn_s1", "dqn_s2", "dqn_s10"], "as people count"
    assert names(expand([str(tmp_path / "long"), str(tmp_path / "dqn_s2")])) == ["ppo_long", "dqn_s2"]


def test_runs_are_found_in_and_below_and_once(tmp_path: Path) -> None:
    make_run(tmp_path / "sweep" / "a" / "a_s0", ROWS)
    make_run(tmp_path / "sweep" / "a" / "a_s1", ROWS)
    make_run(tmp_path / "single", ROWS)
    make_run(tmp_path / "single" / ".replaced" / "261121_090000", ROWS)
    found = find_runs([tmp_path / "single", tmp_path / "sweep", tmp_path / "sweep" / "a" / "a_s1"])
    assert [(run.root.name, run.folder_index) for run in found] == [("single", 0), ("a_s0", 1), ("a_s1", 1)]
    assert found[0].rows == 2


def test_select_wants_all_and_exclude_none(tmp_path: Path) -> None:
    for name in ("lr1_big", "lr1_small", "lr2_big"):
        make_run(tmp_path / name, ROWS)
    assert names([run.root for run in find_runs([tmp_path], select=["lr1"])]) == ["lr1_big", "lr1_small"]
    assert names([run.root for run in find_runs([tmp_path], select=["lr1", "big"])]) == ["lr1_big"]
    assert names([run.root for run in find_runs([tmp_path], exclude=["lr2", "small"])]) == ["lr1_big"]
    with pytest.raises(PlotError, match="exclude all of 3 runs"):
        find_runs([tmp_path], select=["lr1", "lr2"])


@pytest.mark.parametrize(
    ("folder", "config", "name"),
    [
        ("first", ours("cartpole", 3), "cartpole"),
        ("x_s3", ours("cartpole_s3", 3), "cartpole"),
        # its seed is 3: that is a name
        ("ppo_s0", {"exp_name": "ppo-bench", "ac_kwargs": {"hidden_sizes": [32]}}, "ppo-bench"),  # Spinning Up's
        ("ppo_s10", None, "ppo"),
        ("ppo_s3", {"seed": 3}, "ppo"),
    ],
)
def test_what_a_run_is_called(tmp_path: Path, folder: str, config: dict[str, object] | None, name: str) -> None:
    make_run(tmp_path / folder, ROWS, config)
    (run,) = find_runs([tmp_path])
    assert run.name == name


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "progress.txt"


def test_what_the_logbook_writes_is_read(path: Path) -> None:
    file = ProgressFile(path, ProgressColumns(["LossQ"]))
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "its first line must name each column once"),
        ("A\tB\n1\t2\n3\n4\t5\n", "progress.txt:3: 1 cells for 2 columns"),
        ("A\tB\n1\t2\t3\n", "progress.txt:2: 3 cells for 2 columns"),
    ],
)
def test_what_is_no_table(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    with pytest.raises(PlotError, match=said.replace(".", r"\.")):
        read_progress(path)


def test_what_is_no_number_is_nan(path: Path) -> None:
    path.write_text("A\tB\tC\tD\n\tNone\tinf\t1e-3\n")
    values = {name: column[0] for name, column in read_progress(path).items()}
    assert np.isnan(values["A"])
    assert np.isnan(values["B"])
    assert values["C"] == np.inf
    assert values["D"] == 1e-3
