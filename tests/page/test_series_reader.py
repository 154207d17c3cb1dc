"""A time series of any length is read on in bounded memory, sampled at even places, and gives spans."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.logbook.series import Evaluation, Interval, Moment, read_series
from remuda.page.growing import FloatArray, Pyramid, Reduction
from remuda.page.series_reader import HELD_UP, MOST_EVENTS, MOST_SPANS, SeriesReader, Spans, covered, sampled
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


def test_only_the_newest_events_are_kept(folder: RunFolder) -> None:
    write_series(folder, [event(float(n), "worker_back", "learner", WORKER, f"{n}") for n in range(MOST_EVENTS + 7)])
    reader = SeriesReader(folder.series)
    reader.read()
    assert [reader.events[0].text, reader.events[-1].text] == ["7", f"{MOST_EVENTS + 6}"]
    assert reader.events_left_out == 7


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
def test_records_come_in_order_to_the_newest(folder: RunFolder, kind: type[Evaluation | Interval], places: int) -> None:
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


ALL: tuple[Reduction, ...] = ("first", "last", "min", "max", "sum")
NUMBERS = st.floats(-1e6, 1e6) | st.just(math.nan)


def table(values: list[float]) -> FloatArray:
    """Every value in a column for each reduction."""
    return np.repeat(np.array(values, np.float64)[:, None], len(ALL), axis=1)


def expected(values: list[float], width: int) -> list[tuple[float, ...]]:
    found: list[tuple[float, ...]] = []
    for begin in range(0, len(values), width):
        there = [value for value in values[begin : begin + width] if not math.isnan(value)]
        if there:
            found.append((there[0], there[-1], min(there), max(there), math.fsum(there)))
        else:
            found.append((math.nan, math.nan, math.nan, math.nan, 0.0))
    return found


@given(st.lists(st.lists(NUMBERS, max_size=40), max_size=8), st.sampled_from([2, 4, 10]))
def test_each_bucket_is_that_of_its_rows_whatever_the_rows_came_in(pieces: list[list[float]], most: int) -> None:
    pyramid, values = Pyramid(ALL, most_buckets=most), list[float]()
    for piece in pieces:
        pyramid.extend(table(piece))
        values += piece
    buckets = pyramid.buckets()
    assert pyramid.rows == len(values)
    assert len(buckets) <= most
    np.testing.assert_allclose(buckets, np.array(expected(values, pyramid.width)).reshape(-1, len(ALL)), atol=1e-6)


@given(st.lists(NUMBERS, min_size=1, max_size=60), st.integers(1, 20))
def test_fewer_buckets_keep_extremes_sums_and_ends(values: list[float], most: int) -> None:
    pyramid = Pyramid(ALL, most_buckets=64)
    pyramid.extend(table(values))
    buckets = pyramid.buckets(most)
    assert 1 <= len(buckets) <= most
    whole = expected(values, len(values))[0]
    numbers = buckets[~np.isnan(buckets[:, 0])]
    if len(numbers):
        assert (numbers[0, 0], numbers[-1, 1]) == whole[:2]
        assert (numbers[:, 2].min(), numbers[:, 3].max()) == whole[2:4]
    assert math.isclose(buckets[:, 4].sum(), whole[4], abs_tol=1e-6)


JOINED, DIED = "worker_joined", "worker_died"


@pytest.mark.parametrize(
    ("role", "events", "lasting"),
    [
        (
            "collector",
            [(5, JOINED, WORKER), (10, DIED, WORKER), (12, JOINED, OTHER_WORKER), (13, JOINED, WORKER),
             (20, "worker_left", OTHER_WORKER), (30, "worker_failed", WORKER)],
            [(0, 5), (10, 12), (30, 99)],
        ),
        ("learner", [(5, JOINED, WORKER), (10, DIED, WORKER)], []),
        ("collector", [(0, JOINED, WORKER), (9, "run_ends", None), (9.5, "worker_left", WORKER)], []),
        ("collector", [(0, JOINED, WORKER), (9, "run_ends", None), (9.5, "worker_left", WORKER), (14, JOINED, WORKER),
                       (20, DIED, WORKER)], [(9.5, 14), (20, 99)]),
        ("collector", [(0, JOINED, WORKER), (9, "worker_back", WORKER)], []),
        (HELD_UP, [(3, "held_up", None), (5, "goes_on", None), (8, "held_up", None)], [(3, 5), (8, 99)]),
        (HELD_UP, [(n, "held_up" if n % 2 else "goes_on", None) for n in range(10 * MOST_SPANS)], MOST_SPANS),
    ],
)  # fmt: skip
def test_times_without_workers_and_times_that_the_disk_took(role: str, events: list[Any], lasting: Any) -> None:
    found = Spans()
    for wall_s, kind, worker in events:
        found.take(event(float(wall_s), kind, None if worker is None else "collector", worker))
    spans = found.lasting(role, 99.0)
    assert (len(spans) if isinstance(lasting, int) else spans) == lasting


def test_the_share_that_is_covered() -> None:
    for begin_s, end_s, share in [(0.0, 10.0, 0.5), (0.0, 2.0, 0.0), (3.0, 7.0, 0.5), (5.0, 5.0, 0.0)]:
        assert covered([(2.0, 4.0), (6.0, 9.0)], begin_s, end_s) == pytest.approx(share)
