"""The time series of a run: what its records hold, and that each moment is there once, whatever was torn or resumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgpack as untyped  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from remuda.logbook.series import (
    Evaluation,
    Event,
    Interval,
    Logged,
    Moment,
    SeriesError,
    decode_first,
    decode_records,
    read_series,
    read_whole,
)
from remuda.logbook.series_file import EVENTS_PER_INTERVAL, LOGGED_PER_INTERVAL, SeriesFile, SeriesView
from remuda.storage.record_file import packed
from remuda.tests.logbook.series_examples import COLLECTOR, ROWS, UUID, collected, evaluation, joined, logged, vitals
from remuda.wire.messages import Counters

LEARNER_USAGE = {
    "role": "learner", "processes": 1, "cpu_cores": 1.0, "rss_mib": 200.0, "work": 0.75, "env": 0.0,
    "wait_data": 0.25, "wait_policy": 0.0, "wait_credit": 0.0, "wait_other": 0.0,
}  # fmt: skip
COLLECTOR_USAGE = {
    "role": "collector", "processes": 1, "cpu_cores": 0.5, "rss_mib": 100.0, "work": 0.25, "env": 0.25,
    "wait_data": 0.0, "wait_policy": 0.0, "wait_credit": 0.5, "wait_other": 0.0,
}  # fmt: skip
GOLDEN = [
    {"kind": "begin", "format": 1, "time_s": 1.7e9},
    {
        "kind": "event", "time_s": 1.7e9, "wall_s": 0.5, "env_step": 0, "train_iter": 0, "event": "worker_joined",
        "role": "collector", "worker": UUID, "text": f"collector {UUID} joins as collector 0",
    },
    {
        "kind": "evaluation", "time_s": 1.7e9, "wall_s": 20.0, "env_step": 160, "train_iter": 10,
        "checkpoint": "iteration_10.pth.tar", "episodes": 2, "return_mean": 9.0, "return_std": 1.0,
        "duration_s": 1.5, "best": True,
    },
    {
        "kind": "interval", "time_s": 1.7e9, "wall_s": 60.0, "past_s": 60.0, "env_step": 480, "train_iter": 30,
        "episode": 3, "policy_version": 4, "env_steps_per_s": 8.0, "train_iters_per_s": 0.5, "episodes": 4,
        "return_mean": 5.0, "buffer_rows": 470, "policy_lag": 2, "samples_per_insert": 7.5,
        "ledger": {"accepted": 8, "repeated": 1, "refused": 0, "refused_env_steps": 0, "lost_collectors": 2},
        "events_left_out": 0, "roles": [LEARNER_USAGE, COLLECTOR_USAGE],
        "workers": [COLLECTOR_USAGE | {"worker": UUID, "env_steps": 480}],
    },
]  # fmt: skip


def series(path: Path, *, resumed: Counters | None = None) -> SeriesView:
    return SeriesView(SeriesFile(path, resumed=resumed, now_s=lambda: 1.7e9))


def written(path: Path) -> SeriesView:
    view = series(path)
    for report in (joined(0.5), collected(1, 2.0), collected(3, 6.0), collected(0, math.nan, steps=0), ROWS):
        view.show(report)
    view.show(evaluation(20.0))
    view.show(vitals(60.0))
    return view


def unpacked(path: Path) -> list[dict[str, Any]]:
    """As a program without Remuda reads the file."""
    with open(path, "rb") as file:
        return list(cast("Any", untyped).Unpacker(file))


def close(view: SeriesView) -> None:
    assert isinstance(view.file, SeriesFile)
    view.file.close()


def walls(path: Path) -> list[tuple[str, float]]:
    return [(type(moment).__name__, moment.wall_s) for moment in read_series(path)]


def test_anybody_with_msgpack_reads_these_records(tmp_path: Path) -> None:
    path = tmp_path / "series.msgpack"
    close(written(path))
    assert unpacked(path) == GOLDEN
    found = list(read_series(path))
    assert [to_builtins(moment) for moment in found] == GOLDEN[1:]
    assert [type(moment) for moment in found] == [Event, Evaluation, Interval]


def test_rates_are_of_the_time_since_the_interval_before(tmp_path: Path) -> None:
    path = tmp_path / "series.msgpack"
    view = written(path)
    view.show(vitals(70.0, past_s=10.0))
    close(view)
    again = series(path)
    again.show(vitals(100.0, past_s=5.0))
    close(again)
    found = [moment for moment in read_series(path) if isinstance(moment, Interval)]
    assert [(moment.env_steps_per_s, moment.train_iters_per_s) for moment in found] == [(8.0, 0.5)] * 3
    assert [(moment.episodes, moment.return_mean) for moment in found] == [(4, 5.0), (0, None), (0, None)]
    assert [usage.env_steps for moment in found for usage in moment.workers] == [480, 0, 0]


def cuts(ends: Sequence[int]) -> list[int]:
    """Sizes around the end of each record, and some between."""
    near = {end + off for end in (0, *ends) for off in range(-2, 3)}
    return sorted(size for size in near | set(range(0, ends[-1], 9)) if 0 <= size <= ends[-1])


def test_torn_at_any_byte_it_is_continued_behind_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "series.msgpack"
    close(written(path))
    data = path.read_bytes()
    ends = [len(b"".join(packed(record) for record in GOLDEN[: n + 1])) for n in range(len(GOLDEN))]
    assert ends[-1] == len(data)
    for size in cuts(ends):
        path.write_bytes(data[:size])
        whole = sum(end <= size for end in ends)
        assert [to_builtins(moment) for moment in read_series(path)] == GOLDEN[1 : max(whole, 1)], size
        view = series(path)
        view.show(joined(99.0))
        close(view)
        found = unpacked(path)
        assert found[:-1] == GOLDEN[: max(whole, 1)], size
        assert found[-1]["wall_s"] == 99.0


def test_damage_ends_the_reading_and_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "series.msgpack"
    close(written(path))
    whole = path.read_bytes()
    for damage in (b"\xc1", b"\x07", packed({"kind": "event"}), packed({"x": 1}), b"\xdd\xff\xff\xff\xff"):
        path.write_bytes(whole + damage + packed(GOLDEN[1]))
        assert len(walls(path)) == 3
        view = series(path)
        view.show(vitals(120.0))
        close(view)
        assert path.read_bytes().startswith(whole)
        assert walls(path)[3:] == [("Interval", 120.0)]


def test_a_resumed_run_has_each_moment_once(tmp_path: Path) -> None:
    """What an evaluation says of a checkpoint stays with it, though it was known only when the run had gone on."""
    path = tmp_path / "series.msgpack"
    view = series(path)
    for report in (joined(1.0), vitals(60.0), vitals(120.0), evaluation(90.0), joined(121.0), evaluation(119.0)):
        view.show(report)
    close(view)
    again = series(path, resumed=Counters(env_step=720, train_iter=45, wall_s=90.0))
    again.show(vitals(120.0, past_s=30.0, policy_version=7))
    close(again)
    assert walls(path) == [("Event", 1.0), ("Interval", 60.0), ("Evaluation", 90.0), ("Interval", 120.0)]
    last = list(read_series(path))[-1]
    assert isinstance(last, Interval)
    assert (last.policy_version, last.env_steps_per_s, last.train_iters_per_s) == (7, 8.0, 0.5)


def test_what_a_later_version_writes_is_passed_over_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "series.msgpack"
    close(written(path))
    newer = packed({"kind": "film", "wall_s": 30.0, "frames": [1]}) + packed(GOLDEN[1] | {"colour": "red"})
    path.write_bytes(path.read_bytes() + newer)
    assert [name for name, _ in walls(path)] == ["Event", "Evaluation", "Interval", "Event"]
    view = series(path, resumed=Counters(wall_s=40.0))
    view.show(joined(40.0))
    close(view)
    assert newer in path.read_bytes()
    path.write_bytes(packed({"kind": "begin", "format": 2, "time_s": 0.0}))
    with pytest.raises(SeriesError, match=r"series\.msgpack has format 2, .* reads 1"):
        list(read_series(path))


def test_a_run_whose_workers_fail_all_the_time_grows_its_series_by_a_bounded_amount(tmp_path: Path) -> None:
    path = tmp_path / "series.msgpack"
    view = series(path)
    for _ in range(EVENTS_PER_INTERVAL + 7):
        view.show(joined(1.0))
    view.show(vitals(60.0))
    view.show(joined(61.0))
    close(view)
    found: list[Moment] = list(read_series(path))
    assert len(found) == EVENTS_PER_INTERVAL + 2
    assert isinstance(found[-2], Interval)
    assert found[-2].events_left_out == 7


def test_numbers_of_callbacks_leave_room_for_events_and_are_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "series.msgpack"
    view = series(path)
    for number in range(LOGGED_PER_INTERVAL + 7):
        view.show(logged(1.0, value=float(number), unknown=math.nan))
    view.show(joined(2.0))
    view.show(vitals(60.0))
    view.show(logged(61.0, value=-1.0))
    close(view)
    found: list[Moment] = list(read_series(path))
    numbers = [each.numbers for each in found if isinstance(each, Logged)]
    assert numbers == [{"value": float(number)} for number in (*range(LOGGED_PER_INTERVAL), -1)]
    assert [each.event for each in found if isinstance(each, Event)] == ["worker_joined"]


def test_workers_that_are_no_collectors_have_no_steps(tmp_path: Path) -> None:
    path = tmp_path / "series.msgpack"
    view = series(path)
    report = vitals(60.0)
    view.show(type(report)(**{**vars(report), "workers": {"l": report.roles[0], "c": COLLECTOR}}))
    close(view)
    [interval] = read_series(path)
    assert isinstance(interval, Interval)
    assert [(usage.worker, usage.env_steps) for usage in interval.workers] == [("l", None), ("c", 0)]


@pytest.mark.parametrize(
    ("strange", "goes_on"),
    [
        ({"kind": "later", "wall_s": 1.0}, True),
        ({"kind": "event"}, False),
        ({"wall_s": 1.0}, False),
        ({"kind": 7}, False),
        ([], False),
        (7, False),
    ],
)
def test_many_at_a_time_they_are_those_that_are_read_one_by_one(tmp_path: Path, strange: object, goes_on: bool) -> None:
    """Kinds of later versions are left out; reading ends at what is no record."""
    path = tmp_path / "series.msgpack"
    close(written(path))
    good = path.read_bytes()
    last = packed(GOLDEN[2])
    path.write_bytes(good + packed(strange) + last)
    records, end = decode_records(path.read_bytes())
    assert records == [whole.record for whole in read_whole(path) if whole.record is not None]
    assert end == (path.stat().st_size if goes_on else len(good))
    assert decode_first(packed(strange) + last) is None


@given(st.binary(max_size=300))
def test_nothing_that_may_stand_in_a_file_raises(damage: bytes) -> None:
    data = packed(GOLDEN[1]) + damage
    records, end = decode_records(data)
    assert end >= len(packed(GOLDEN[1]))
    assert to_builtins(records[0]) == GOLDEN[1]
    assert decode_records(b"\x81\xa1x" * 900 + b"\xc0") == ([], 0)
