"""A curve of any length is opened by its end, and whenever its writer is killed each point is there once."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from remuda.logbook.event_file import blank_frame, read_frames, version_event
from remuda.logbook.tensorboard import EventWriter
from remuda.tests.logbook.event_reader import curves
from remuda.wire.messages import Counters

RESUMED = Counters(train_iter=20, env_step=200, wall_s=10.0)


def run_updates(writer: EventWriter, *train_iters: int) -> None:
    """An update every 8 environment steps and every half second."""
    for i in train_iters:
        writer.scalars("learner", {"total_loss_avg": i / 4}, train_iter=i, env_step=8 * i)
        writer.throughput("buffer", {"pushed_in": 8 * i}, wall_s=i / 2)


def long_curve(folder: Path, updates: int) -> None:
    writer = EventWriter(folder)
    for i in range(updates):
        writer.scalars("learner", {f"value_{n}": float(n) for n in range(20)}, train_iter=i, env_step=8 * i)
    writer.close()


def bytes_so_far() -> dict[str, int]:
    """Bytes that this process has read and written, as the kernel counts."""
    with open("/proc/self/io") as file:
        return {name.rstrip(":"): int(count) for name, count in map(str.split, file)}


def steps(folder: Path, tag: str) -> list[int]:
    return [step for step, _ in curves(folder)[tag]]


def test_opening_reads_and_writes_what_is_new_and_not_the_curve(tmp_path: Path) -> None:
    """Everything holds; the last 10 of 600 updates do not; rewound once more."""
    long_curve(tmp_path, 600)
    size = next(tmp_path.iterdir()).stat().st_size
    assert size > 10 * 64 << 10
    before = bytes_so_far()
    EventWriter(tmp_path).close()
    writer = EventWriter(tmp_path, resumed=Counters(train_iter=590, env_step=8 * 595, wall_s=1.0))
    writer.rewind(580)
    writer.newest_step("learner_iter")
    writer.close()
    after = bytes_so_far()
    assert all(after[what] - before[what] < 6 * (64 << 10) for what in ("rchar", "wchar"))
    assert steps(tmp_path, "learner_iter/value_3") == list(range(581))
    assert steps(tmp_path, "learner_step/value_3") == [8 * i for i in range(596)]


def test_a_writer_whose_file_was_taken_over_writes_no_more(tmp_path: Path) -> None:
    """A learner that was stopped and replaced goes on."""
    stopped = EventWriter(tmp_path)
    run_updates(stopped, 10, 20, 30)
    successor = EventWriter(tmp_path, resumed=RESUMED)
    with pytest.raises(OSError, match="taken it over"):
        run_updates(stopped, 40)
    run_updates(successor, 30)
    stopped.close()
    successor.close()
    assert steps(tmp_path, "learner_iter/total_loss_avg") == [10, 20, 30]


class Killed(BaseException):
    """The process is no more."""


class Kill:
    """Ends the process in the middle of its n-th call that changes a file: of what is written, half gets there."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int) -> None:
        self.calls = 0
        self._at = at
        self._open: set[int] = set()
        patch.setattr(os, "open", self._noting(os.open))
        for name in ("write", "pwrite", "ftruncate", "replace"):
            patch.setattr(os, name, self._dying(getattr(os, name), half=name.endswith("write")))

    def close_files(self) -> None:
        """As the system does for a process that has ended."""
        for descriptor in self._open:
            with suppress(OSError):  # closed before it was killed
                os.close(descriptor)

    def _noting(self, call: Callable[..., int]) -> Callable[..., int]:
        def act(*arguments: Any, **named: Any) -> int:
            descriptor = call(*arguments, **named)
            self._open.add(descriptor)
            return descriptor

        return act

    def _dying(self, call: Callable[..., Any], *, half: bool) -> Callable[..., Any]:
        def act(first: Any, data: Any, *rest: Any) -> Any:
            if self.calls >= self._at:
                if half and self.calls == self._at:
                    call(first, data[: len(data) // 2], *rest)
                self.calls += 1
                raise Killed
            self.calls += 1
            return call(first, data, *rest)

        return act


def test_killed_at_any_call_and_opened_again_every_point_is_there_once(tmp_path: Path) -> None:
    expected = {
        "learner_iter/total_loss_avg": [(i, i / 4) for i in (*range(21), 30, 40)],
        "learner_step/total_loss_avg": [(8 * i, i / 4) for i in (*range(26), 30, 40)],
        "buffer_sec/pushed_in": [(i // 2, 8.0 * i) for i in (*range(0, 21, 2), 30, 40)],
    }
    for number in range(1000):
        folder = tmp_path / str(number)
        folder.mkdir()
        first = EventWriter(folder)
        run_updates(first, *range(30))
        first.close()
        with pytest.MonkeyPatch.context() as patch:
            kill = Kill(patch, number)
            with suppress(Killed):
                run_updates(EventWriter(folder, resumed=RESUMED), 30)
        kill.close_files()
        again = EventWriter(folder, resumed=RESUMED)
        run_updates(again, 30, 40)
        again.close()
        assert curves(folder) == expected, f"killed at call {number}"
        assert len(list(folder.iterdir())) == 1
        if kill.calls <= number:
            break
    assert number > 10


def test_a_damaged_record_in_the_middle_costs_that_record(tmp_path: Path) -> None:
    """As one that was being blanked when the machine died."""
    writer = EventWriter(tmp_path)
    run_updates(writer, *range(10))
    writer.close()
    data = bytearray(writer.path.read_bytes())
    frame = [frame for frame in read_frames(bytes(data), checked=True) if frame.tag][6]
    data[frame.begin + 30] ^= 0xFF
    writer.path.write_bytes(data)
    again = EventWriter(tmp_path)
    run_updates(again, 10)
    again.close()
    assert sum(map(len, curves(tmp_path).values())) == 2 * 11 + 6 - 1


def test_a_file_of_an_older_version_has_no_marks_and_is_continued(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    run_updates(writer, *range(40))
    writer.close()
    data = writer.path.read_bytes()
    events = [data[frame.begin : frame.end] for frame in read_frames(data, checked=True) if frame.tag]
    writer.path.write_bytes(version_event(1.0) + b"".join(events))
    again = EventWriter(tmp_path, resumed=RESUMED)
    run_updates(again, 30)
    again.close()
    assert steps(tmp_path, "learner_iter/total_loss_avg") == [*range(21), 30]
    assert steps(tmp_path, "learner_step/total_loss_avg") == [*range(0, 201, 8), 240]


def test_an_event_that_says_nothing_may_have_any_size(tmp_path: Path) -> None:
    head = version_event(1.0)
    sizes = (30, 142, 143, 144, 145, 16_400, 70_000)
    (tmp_path / "events.out.tfevents.1.x").write_bytes(head + b"".join(map(blank_frame, sizes)))
    assert curves(tmp_path) == {}
    writer = EventWriter(tmp_path)
    run_updates(writer, 1)
    writer.close()
    assert steps(tmp_path, "learner_iter/total_loss_avg") == [1]
    assert [len(blank_frame(size)) for size in sizes] == list(sizes)
