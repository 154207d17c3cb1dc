"""Where each role's time goes: shares that add up to 1, and each wait under its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.page.series_reader import KINDS, SeriesReader
from remuda.page.timeline import SHARES, RoleTimeline, Timeline, recent, shares, timeline
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
    assert collector.total["wait_workers"] == pytest.approx(1.25 / 3)
    assert sum(collector.total.values()) == pytest.approx(1.0)
    assert view.rates["samples_per_insert"] == [7.5] * 3
    assert [each.event for each in view.events] == ["worker_joined", "worker_died", "worker_joined"]
    assert view.wall_s == 180.0


def test_the_last_minutes_say_what_a_run_waits_for_now(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "a")
    busy = replace(LEARNER, work=1.0, wait_data=0.0)
    write_series(folder, [*(interval(60.0 * n, roles=[busy]) for n in range(1, 9)), interval(540.0), interval(600.0)])
    assert recent(read(folder.series), 120.0)["learner"]["wait_batches"] == pytest.approx(0.25)
    assert recent(read(folder.series), 240.0)["learner"]["wait_batches"] == pytest.approx(0.125)
    assert recent(read(tmp_path / "series.msgpack"), 120.0) == {}


def test_until_it_is_read_whole_the_timeline_is_a_sample_of_all_of_it(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "a")
    busy, idle = replace(LEARNER, work=1.0, wait_data=0.0), replace(LEARNER, work=0.0, wait_data=1.0)
    write_series(folder, [interval(60.0 * n, roles=[busy if n <= 1_500 else idle]) for n in range(1, 3_001)])
    reader = SeriesReader(folder.series)
    assert not reader.read(lambda: False)
    view = timeline(reader, buckets=100)
    assert view.read < 1.0
    assert (view.begin_s[0], view.end_s[-1], view.wall_s) == (0.0, 180_000.0, 180_000.0)
    work = of(view, "learner").shares["work"]
    assert set(work) == {0.0, 1.0}
    assert sum(share for share in work if share is not None) == pytest.approx(50, abs=2)
