"""Runs that are made for the figures of the page are such as runs leave behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from remuda.benchmarks.made_runs import PER_INTERVAL, SEEDS, STEPS, made, returns
from remuda.client.plots.runs import read_progress
from remuda.logbook.series import Evaluation, Interval, read_series
from remuda.page.progress_reader import ProgressReader
from remuda.page.run_ids import RunIds
from remuda.page.stored_runs import StoredRuns

POINTS = 3 * PER_INTERVAL


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "runs"
    made(folder, SEEDS + 1, POINTS)
    return folder


def test_they_are_finished_runs_of_variants_with_seeds(runs_dir: Path) -> None:
    found = StoredRuns(RunIds(runs_dir)).all()
    assert len(found) == SEEDS + 1
    assert {run.state for run in found} == {"finished"}
    assert {run.env_step for run in found} == {STEPS * POINTS}
    assert sorted(sum(one.group == run.group for one in found) for run in found) == [1, *[SEEDS] * SEEDS]


def test_a_table_has_its_points_in_the_columns_of_a_run(runs_dir: Path) -> None:
    path = runs_dir / "cartpole_lr0.0001_s2" / "progress.txt"
    table = read_progress(path)
    assert table["AverageEpRet"] == pytest.approx(returns(POINTS, 2), abs=1e-6)
    assert np.diff(table["TotalEnvInteracts"]).tolist() == [STEPS] * (POINTS - 1)
    assert np.isnan(table["AverageTestEpRet"]).all()
    reader = ProgressReader(path)
    assert reader.read()
    assert reader.table.rows == POINTS


def test_a_series_has_its_points_between_intervals(runs_dir: Path) -> None:
    moments = list(read_series(runs_dir / "cartpole_lr0.0002_s0" / "log" / "series.msgpack"))
    evaluations = [moment for moment in moments if isinstance(moment, Evaluation)]
    intervals = [moment for moment in moments if isinstance(moment, Interval)]
    assert [moment.return_mean for moment in evaluations] == returns(POINTS, 0).tolist()
    assert [moment.env_step for moment in evaluations] == [STEPS * (n + 1) for n in range(POINTS)]
    assert [moment.wall_s for moment in intervals] == [60.0, 120.0, 180.0]
    assert [moment.env_step for moment in intervals] == [STEPS * PER_INTERVAL * (n + 1) for n in range(3)]
    assert [moment.wall_s for moment in moments] == sorted(moment.wall_s for moment in moments)
