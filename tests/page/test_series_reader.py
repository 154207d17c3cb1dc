"""A time series of any length is shown in bounded memory, and is read on as it grows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.logbook.series import Moment, WorkerUsage
from remuda.page.series_reader import MOST_EVENTS, SeriesReader
from remuda.storage.run_folder import RunFolder
from remuda.tests.page.folders import WORKER, evaluation, event, interval, run_folder, write_series


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return run_folder(tmp_path / "runs", "a")


def some(count: int, begin: int = 1) -> list[Moment]:
    return [
        moment for n in range(begin, begin + count) for moment in (interval(60.0 * n), evaluation(60.0 * n, float(n)))
    ]


def test_it_reads_on_where_it_stopped(folder: RunFolder) -> None:
    write_series(folder, some(3))
    reader = SeriesReader(folder.series)
    assert reader.read()
    offset = reader.offset
    assert (reader.intervals.rows, reader.evaluations.rows) == (3, 3)
    write_series(folder, some(2, begin=4))
    assert reader.read()
    assert (reader.intervals.rows, reader.evaluations.rows) == (5, 5)
    assert reader.offset > offset
    assert reader.offset == folder.series.stat().st_size
    assert reader.last is not None
    assert reader.last.wall_s == 300.0


def test_a_record_that_is_being_written_waits(folder: RunFolder) -> None:
    write_series(folder, some(2))
    whole = folder.series.read_bytes()
    folder.series.write_bytes(whole[:-5])
    reader = SeriesReader(folder.series)
    assert reader.read()
    assert (reader.intervals.rows, reader.evaluations.rows, reader.read_share) == (2, 1, 1.0)
    with folder.series.open("ab") as file:
        file.write(whole[-5:])
    assert reader.read()
    assert reader.evaluations.rows == 2


def test_reading_stops_when_its_time_is_up_and_goes_on_later(folder: RunFolder) -> None:
    write_series(folder, some(2_000))
    reader = SeriesReader(folder.series)
    rounds = 1
    while not reader.read(lambda: False):
        assert 0.0 < reader.read_share < 1.0
        rounds += 1
    assert rounds > 3
    assert (reader.intervals.rows, reader.evaluations.rows) == (2_000, 2_000)


def test_a_resumed_run_that_removed_records_is_read_again(folder: RunFolder) -> None:
    write_series(folder, some(4))
    reader = SeriesReader(folder.series)
    reader.read()
    os.truncate(folder.series, 0)
    write_series(folder, some(6, begin=2))
    assert reader.read()
    assert reader.intervals.rows == 6


def test_only_the_newest_events_are_kept(folder: RunFolder) -> None:
    write_series(folder, [event(float(n), "worker_back", "learner", WORKER, f"{n}") for n in range(MOST_EVENTS + 7)])
    reader = SeriesReader(folder.series)
    reader.read()
    assert [reader.events[0].text, reader.events[-1].text] == ["7", f"{MOST_EVENTS + 6}"]
    assert reader.events_left_out == 7


def test_no_file_is_an_empty_one(tmp_path: Path) -> None:
    reader = SeriesReader(tmp_path / "series.msgpack")
    assert reader.read()
    assert (reader.intervals.rows, reader.read_share, reader.last) == (0, 1.0, None)


def test_a_record_that_is_longer_than_a_block_is_read(folder: RunFolder) -> None:
    usage = WorkerUsage("collector", 1, 0.5, 100.0, 0.25, 0.25, 0.0, 0.0, 0.5, 0.0, worker=WORKER)
    write_series(folder, [interval(60.0), interval(120.0, workers=[usage] * 3_000), *some(2, begin=3)])
    assert folder.series.stat().st_size > 400_000
    reader = SeriesReader(folder.series)
    assert reader.read()
    assert (reader.intervals.rows, reader.read_share) == (4, 1.0)


def test_a_damaged_file_is_read_up_to_the_damage(folder: RunFolder) -> None:
    write_series(folder, some(3))
    good = folder.series.read_bytes()
    folder.series.write_bytes(good + b"\xc1" * 100)
    reader = SeriesReader(folder.series)
    assert reader.read()
    assert reader.intervals.rows == 3
    assert reader.offset == len(good)
