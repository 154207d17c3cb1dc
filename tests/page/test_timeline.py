"""Where each role's time goes: shares that add up to 1, and each wait under its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.page.series_reader import KINDS, SeriesReader
from remuda.page.timeline import SHARES, RoleTimeline, Timeline, shares, timeline
from remuda.tests.page.folders import COLLECTOR, LEARNER, WORKER, event, interval, run_folder, write_series

PART = st.floats(0.0, 1e6)


@given(
    st.lists(PART, min_size=len(KINDS), max_size=len(KINDS)).filter(lambda parts: sum(parts) > 1e-3),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)
def test_they_are_all_of_the_time(parts: list[float], absent: float, held_up: float) -> None:
    found = shares(dict(zip(KINDS, parts, strict=True)), sum(parts), absent=absent, held_up=held_up)
    assert found is not None
    assert set(found) == set(SHARES)
    assert sum(found.values()) == pytest.approx(1.0)
    assert all(-1e-9 <= share <= 1.0 + 1e-9 for share in found.values())


def test_by_hand() -> None:
    spent = {"work": 2.0, "env": 1.0, "wait_credit": 3.0, "wait_data": 2.0, "wait_policy": 1.0, "wait_other": 1.0}
    assert shares(spent, 10.0) == pytest.approx(
        {
            "work": 0.2, "env": 0.1, "wait_credit": 0.3, "wait_batches": 0.2, "wait_policy": 0.1, "wait_other": 0.1,
            "wait_disk": 0.0, "wait_workers": 0.0,
        }
    )  # fmt: skip


def test_time_that_the_disk_held_up_was_waited_under_another_name() -> None:
    found = shares({"work": 5.0, "wait_credit": 4.0, "wait_other": 1.0}, 10.0, held_up=0.25)
    assert found is not None
    assert (found["work"], found["wait_disk"]) == pytest.approx((0.5, 0.25))
    assert (found["wait_credit"], found["wait_other"]) == pytest.approx((0.2, 0.05))


def test_time_without_workers_is_waiting_for_them() -> None:
    found = shares({"work": 10.0}, 10.0, absent=0.75)
    assert found is not None
    assert (found["work"], found["wait_workers"]) == pytest.approx((0.25, 0.75))
    assert shares({}, 0.0, absent=1.0) == {**dict.fromkeys(SHARES, 0.0), "wait_workers": 1.0}
    assert shares({}, 0.0) is None


def read(folder_of: Path) -> SeriesReader:
    reader = SeriesReader(folder_of)
    assert reader.read()
    return reader


def of(view: Timeline, role: str) -> RoleTimeline:
    return next(each for each in view.roles if each.role == role)


def test_a_run(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "a")
    write_series(
        folder,
        [
            event(0.0, "worker_joined", "collector", WORKER),
            interval(60.0),
            event(60.0, "worker_died", "collector", WORKER),
            interval(120.0, roles=[LEARNER]),
            event(135.0, "worker_joined", "collector", WORKER),
            interval(180.0, roles=[LEARNER, replace(COLLECTOR, processes=1)]),
        ],
    )
    view = timeline(read(folder.series), buckets=200)
    assert (view.begin_s, view.end_s) == ([0.0, 60.0, 120.0], [60.0, 120.0, 180.0])
    assert [role.role for role in view.roles] == ["learner", "collector"]
    learner, collector = of(view, "learner"), of(view, "collector")
    assert learner.shares["wait_batches"] == [0.25] * 3
    assert learner.rss_bytes == [200.0 * 2**20] * 3
    assert collector.processes == [2.0, 0.0, 1.0]
    assert collector.shares["wait_credit"] == pytest.approx([0.5, 0.0, 0.375])
    assert collector.shares["wait_workers"] == pytest.approx([0.0, 1.0, 0.25])
    assert view.rates["samples_per_insert"] == [7.5] * 3
    assert [each.event for each in view.events] == ["worker_joined", "worker_died", "worker_joined"]
    assert view.wall_s == 180.0


def test_several_intervals_in_one_bucket_are_their_mean_by_time(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "a")
    busy = replace(LEARNER, work=1.0, wait_data=0.0)
    idle = replace(LEARNER, work=0.0, wait_data=1.0)
    write_series(folder, [interval(10.0, past_s=10.0, roles=[busy]), interval(40.0, past_s=30.0, roles=[idle])])
    view = timeline(read(folder.series), buckets=1)
    assert (view.begin_s, view.end_s) == ([0.0], [40.0])
    assert of(view, "learner").shares["work"] == pytest.approx([0.25])
    assert of(view, "learner").processes == [1.0]


def test_a_part_of_the_time(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "a")
    write_series(folder, [interval(60.0 * n) for n in range(1, 11)])
    view = timeline(read(folder.series), buckets=200, from_s=120.0, to_s=300.0)
    assert (view.begin_s, view.end_s) == ([120.0, 180.0, 240.0], [180.0, 240.0, 300.0])
    assert view.wall_s == 600.0


def test_nothing_is_known_yet(tmp_path: Path) -> None:
    view = timeline(read(tmp_path / "series.msgpack"), buckets=10)
    assert (view.begin_s, view.roles, view.events, view.read) == ([], [], [], 1.0)


def test_an_interval_without_time_has_no_bucket(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "a")
    write_series(folder, [interval(60.0), interval(60.0, past_s=0.0)])
    view = timeline(read(folder.series), buckets=10)
    assert view.end_s == [60.0]
