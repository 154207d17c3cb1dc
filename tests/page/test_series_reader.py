"""A time series of any length is read on in bounded memory, sampled at even places, and gives spans."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from remuda.logbook.series import Evaluation, Interval, Moment, WorkerUsage, marker, read_series
from remuda.page.series_reader import (
    HELD_UP,
    MOST_EVENTS,
    MOST_SPANS,
    SeriesReader,
    Spans,
    covered,
    newest_interval,
    sampled,
)
from remuda.storage.run_folder import RunFolder
from remuda.tests.page.folders import OTHER_WORKER, WORKER, evaluation, event, interval, run_folder, write_series


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


def spans(*events: tuple[float, str, str | None]) -> Spans:
    found = Spans()
    for wall_s, kind, worker in events:
        found.take(event(wall_s, kind, None if worker is None else "collector", worker))  # type: ignore[arg-type]
    return found


def test_a_role_has_nobody_before_its_first_worker_and_while_all_are_gone() -> None:
    found = spans(
        (5.0, "worker_joined", WORKER),
        (10.0, "worker_died", WORKER),
        (12.0, "worker_joined", OTHER_WORKER),
        (13.0, "worker_joined", WORKER),
        (20.0, "worker_left", OTHER_WORKER),
        (30.0, "worker_failed", WORKER),
    )
    assert found.roles == ["collector"]
    assert found.lasting("collector", 33.0) == [(0.0, 5.0), (10.0, 12.0), (30.0, 33.0)]
    assert found.lasting("learner", 33.0) == []


def test_nobody_waits_for_workers_after_the_end() -> None:
    found = spans((0.0, "worker_joined", WORKER), (9.0, "run_ends", None), (9.5, "worker_left", WORKER))
    assert found.lasting("collector", 100.0) == []


def test_a_run_that_is_resumed_waits_again() -> None:
    found = spans(
        (0.0, "worker_joined", WORKER),
        (9.0, "run_ends", None),
        (9.5, "worker_left", WORKER),
        (14.0, "worker_joined", WORKER),
        (20.0, "worker_died", WORKER),
    )
    assert found.lasting("collector", 30.0)[-1] == (20.0, 30.0)


def test_a_worker_that_is_back_was_never_away() -> None:
    found = spans((0.0, "worker_joined", WORKER), (9.0, "worker_back", WORKER))
    assert found.lasting("collector", 30.0) == []


def test_the_disk_holds_a_run_up_until_it_goes_on() -> None:
    found = spans((3.0, "held_up", None), (5.0, "goes_on", None), (8.0, "held_up", None))
    assert found.lasting(HELD_UP, 10.0) == [(3.0, 5.0), (8.0, 10.0)]


def test_they_do_not_grow_without_end() -> None:
    found = spans(*((float(n), "held_up" if n % 2 else "goes_on", None) for n in range(10 * MOST_SPANS)))
    assert len(found.lasting(HELD_UP, 0.0)) == MOST_SPANS


@pytest.mark.parametrize(
    ("begin_s", "end_s", "share"),
    [(0.0, 10.0, 0.5), (0.0, 2.0, 0.0), (2.0, 4.0, 1.0), (3.0, 7.0, 0.5), (5.0, 5.0, 0.0)],
)
def test_the_share_that_is_covered(begin_s: float, end_s: float, share: float) -> None:
    assert covered([(2.0, 4.0), (6.0, 9.0)], begin_s, end_s) == pytest.approx(share)
