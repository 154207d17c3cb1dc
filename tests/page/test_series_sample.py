"""A long time series is sampled at even places, by records that are really there."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from remuda.logbook.series import Evaluation, Interval, Moment, WorkerUsage, marker, read_series
from remuda.page.series_reader import newest_interval, sampled
from remuda.storage.run_folder import RunFolder
from remuda.tests.page.folders import WORKER, evaluation, event, interval, run_folder, write_series


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return run_folder(tmp_path / "runs", "a")


def mixed(count: int) -> list[Moment]:
    """Ten evaluations for each interval, and an event."""
    moments: list[Moment] = []
    for n in range(count):
        moments += [evaluation(10.0 * n + m, float(n)) for m in range(10)]
        moments += [interval(10.0 * n + 9.5, past_s=10.0), event(10.0 * n + 9.7, "worker_back", "collector", WORKER)]
    return moments


@pytest.mark.parametrize("kind", [Evaluation, Interval])
@pytest.mark.parametrize("places", [1, 2, 20])
def test_they_are_records_of_the_file_in_their_order_and_the_newest_is_one_of_them(
    folder: RunFolder, kind: type[Evaluation | Interval], places: int
) -> None:
    write_series(folder, mixed(100))
    found = sampled(folder.series, kind, places)
    of_file = [moment for moment in read_series(folder.series) if isinstance(moment, kind)]
    places_in_file = [of_file.index(record) for record in found]
    assert places_in_file == sorted(set(places_in_file))
    assert places_in_file[-1] == len(of_file) - 1
    assert len(found) == places
    if places == 20:
        steps = [after - before for before, after in pairwise(places_in_file)]
        assert max(steps) <= 2 * len(of_file) / places, "evenly"


def test_of_a_short_file_each_is_there_once(folder: RunFolder) -> None:
    moments: list[Moment] = [evaluation(60.0 * n, float(n)) for n in range(4)]
    write_series(folder, moments)
    assert sampled(folder.series, Evaluation, 500) == moments
    assert sampled(folder.series, Interval, 500) == []


def test_large_intervals_are_found(folder: RunFolder) -> None:
    usage = WorkerUsage("collector", 1, 0.5, 100.0, 0.25, 0.25, 0.0, 0.0, 0.5, 0.0, worker=WORKER)
    write_series(folder, [interval(60.0 * n, workers=[usage] * 100) for n in range(1, 40)])
    found = sampled(folder.series, Interval, 11)
    assert len(found) == 11
    assert found[-1].wall_s == 60.0 * 39


def test_what_is_torn_or_damaged_is_left_out(folder: RunFolder) -> None:
    write_series(folder, [interval(60.0), interval(120.0)])
    whole = folder.series.read_bytes()
    folder.series.write_bytes(whole[:-1])
    newest = newest_interval(folder.series)
    assert newest is not None
    assert newest.wall_s == 60.0
    folder.series.write_bytes(b"\x8b" + marker(Interval) + b"\xc1" * 100)
    assert newest_interval(folder.series) is None
    assert sampled(folder.series, Interval, 5) == []


def test_no_file_has_no_interval(tmp_path: Path) -> None:
    assert newest_interval(tmp_path / "none") is None
    with pytest.raises(OSError, match="none"):
        sampled(tmp_path / "none", Interval, 5)
