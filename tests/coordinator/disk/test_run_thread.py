"""One run's writing: in order, journal first, tried again while a disk refuses, and nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from remuda.coordinator.disk.jobs import WAITING_AT_MOST, BusyError, Jobs
from remuda.coordinator.disk.run_folder import RunEffect
from remuda.coordinator.disk.run_thread import JournalBatch, Journaled, RunThread
from remuda.coordinator.effects import DeleteChunks, RewindCurves
from remuda.coordinator.events import RunBroken
from remuda.tests.patience import HANG_S, until
from remuda.training.effects import LogLine
from remuda.training.journal_entry import JournalEntry

ID = "eeeeeeee-0000-4000-8000-000000000001"


def entry(number: int) -> JournalEntry:
    """The lane looks at nothing in it."""
    return cast(JournalEntry, number)


@dataclass
class Writer:
    """Writes down what it is asked for; a gate that is shut is a disk that does not answer."""

    done: list[object] = field(default_factory=list[object])
    gate: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    journal_error: Exception | None = None
    called: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def journal(self, turns: Sequence[JournalEntry]) -> None:
        if self.journal_error is not None:
            raise self.journal_error
        self._do(tuple(turns))

    def carry_out(self, effect: RunEffect) -> None:
        self._do(effect)

    def confirm(self) -> None:
        self._do("confirm")

    def check_room(self, size_bytes: int) -> None:
        self._do(size_bytes)

    def close(self) -> None:
        self.done.append("close")

    def _do(self, what: object) -> None:
        self.called.release()
        assert self.gate.wait(HANG_S)
        if self.error is not None:
            raise self.error
        self.done.append(what)


class Told:
    """What a lane has told."""

    def __init__(self) -> None:
        self.all: list[Journaled | RunBroken] = []
        self._came = threading.Condition()

    def __call__(self, told: Journaled | RunBroken) -> None:
        with self._came:
            self.all.append(told)
            self._came.notify_all()

    def wait(self, count: int = 1) -> None:
        with self._came:
            assert self._came.wait_for(lambda: len(self.all) >= count, HANG_S)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Scene:
    writer: Writer
    told: Told
    clock: Clock
    run_thread: RunThread

    def rest(self) -> None:
        self.run_thread.rest()
        assert self.run_thread.join(self.clock.now_s + HANG_S)


@pytest.fixture
def scene() -> Generator[Scene]:
    writer, told, clock = Writer(), Told(), Clock()
    scene = Scene(writer, told, clock, RunThread(ID, writer, told, clock))
    yield scene
    scene.run_thread.give_up()
    writer.gate.set()
    assert scene.run_thread.join(clock.now_s + HANG_S), "its thread is gone"


DELETION, LINE = DeleteChunks(ID, ("a",)), LogLine(ID, "text")


def test_a_turn_is_journaled_then_what_it_deletes_is_deleted_then_it_is_told_then_comes_the_rest(scene: Scene) -> None:
    scene.writer.gate.set()
    scene.run_thread.put(JournalBatch(1, entry(1), [LINE, DELETION]))
    scene.told.wait()
    scene.rest()
    assert scene.writer.done == [(1,), DELETION, LINE, "close"]
    assert scene.told.all == [Journaled(ID, 1)]


def test_curves_are_rewound_after_all_that_was_shown_before_and_before_the_learner_is_told_to_begin() -> None:
    writer, clock = Writer(), Clock()
    writer.gate.set()
    run_thread = RunThread(ID, writer, writer.done.append, clock)
    rewound, after = RewindCurves(ID, 500), LogLine(ID, "after")
    run_thread.put(JournalBatch(1, entry(1), [LINE, rewound, after, DELETION]))
    run_thread.rest()
    assert run_thread.join(clock.now_s + HANG_S)
    assert writer.done == [(1,), LINE, rewound, DELETION, Journaled(ID, 1), after, "close"]


def test_what_a_disk_refuses_is_tried_again_and_goes_on_where_it_was(scene: Scene) -> None:
    scene.writer.error = OSError(28, "No space left on device")
    scene.writer.gate.set()
    scene.run_thread.put(JournalBatch(1, entry(1), [LINE]))
    for _ in range(3):
        assert scene.writer.called.acquire(timeout=HANG_S)
    assert scene.run_thread.refusal == "[Errno 28] No space left on device"
    assert scene.told.all == []
    scene.writer.error = None
    scene.told.wait()
    scene.rest()
    assert scene.writer.done == [(1,), LINE, "close"]
    assert scene.run_thread.refusal is None


def test_an_error_is_logged_once_while_the_journal_is_refused(scene: Scene) -> None:
    """Whoever reads the log of a run that is held up sees why, if its disk has room for a line."""
    scene.writer.journal_error = OSError(28, "No space left on device")
    scene.writer.gate.set()
    wrong = LogLine(ID, "is held up", "error")
    scene.run_thread.put(JournalBatch(1, entry(1), [LINE]))
    scene.run_thread.put(JournalBatch(2, entry(2), [wrong]))
    until(lambda: scene.writer.done == [wrong], "it is logged, and nothing else")
    scene.writer.journal_error = None
    scene.told.wait()
    scene.rest()
    assert scene.writer.done.count(wrong) == scene.writer.done.count(LINE) == 1


def test_what_is_no_refusal_breaks_the_lane_and_closes_the_files(scene: Scene) -> None:
    scene.writer.error = OverflowError("int too large")
    scene.writer.gate.set()
    scene.run_thread.put(JournalBatch(1, entry(1), []))
    scene.told.wait()
    [told] = scene.told.all
    assert isinstance(told, RunBroken)
    assert told.reason == "OverflowError: int too large"
    assert "Traceback" in told.traceback
    assert scene.run_thread.join(scene.clock.now_s + HANG_S)
    assert scene.writer.done == ["close"]


def test_what_is_given_up_is_left_undone_and_its_files_are_closed(scene: Scene) -> None:
    scene.writer.error = OSError("no")
    scene.writer.gate.set()
    scene.run_thread.put(JournalBatch(1, entry(1), [LINE]))
    assert scene.writer.called.acquire(timeout=HANG_S)
    scene.run_thread.give_up()
    assert scene.run_thread.join(scene.clock.now_s + HANG_S)
    assert scene.writer.done == ["close"]
    assert scene.told.all == []


def test_room_is_looked_for_until_it_is_there_and_turns_are_written_meanwhile(scene: Scene) -> None:
    scene.writer.error = OSError(28, "No space left on device")
    scene.writer.gate.set()
    scene.run_thread.want_room(1_000_000)
    assert scene.writer.called.acquire(timeout=HANG_S)
    until(lambda: scene.run_thread.room.problem is not None, "there is none")
    scene.writer.error = None
    scene.run_thread.put(JournalBatch(1, entry(1), []))
    scene.told.wait()
    assert scene.run_thread.room.lacking_s(scene.clock.now_s + 3.0) == 3.0
    scene.clock.now_s += 1.1
    until(lambda: not scene.run_thread.room.wanted_bytes, "it looks again")
    assert scene.writer.done == [(1,), 1_000_000]
    assert scene.run_thread.room.lacking_s(scene.clock.now_s) == 0.0


def test_other_hosts_are_shown_now_and_then_that_the_run_is_worked_on(scene: Scene) -> None:
    scene.writer.gate.set()
    for number in (1, 2):
        scene.run_thread.put(JournalBatch(number, entry(number), []))
        scene.told.wait(number)
        scene.clock.now_s += 11.0
    scene.run_thread.put(JournalBatch(3, entry(3), []))
    scene.told.wait(3)
    scene.rest()
    assert "confirm" in scene.writer.done


def test_calls_of_one_key_run_in_order_and_those_of_another_do_not_wait_for_them() -> None:
    jobs, gate, other = Jobs(), threading.Event(), threading.Event()
    done: list[int] = []
    jobs.put("slow", lambda: done.append(0 if gate.wait(HANG_S) else -1))
    for number in (1, 2, 3):
        jobs.put("slow", lambda number=number: done.append(number))  # type: ignore[misc]
    jobs.put("quick", other.set)
    assert other.wait(HANG_S)
    assert done == []
    gate.set()
    until(lambda: len(done) == 4, "the slow ones")
    assert done == [0, 1, 2, 3]


def test_what_waits_is_bounded_and_refused_beyond_that() -> None:
    jobs, gate = Jobs(), threading.Event()
    done: list[int] = []
    jobs.put("slow", lambda: done.append(0 if gate.wait(HANG_S) else -1))
    until(lambda: not jobs.waiting("slow"), "the first one is under way")
    for number in range(WAITING_AT_MOST):
        jobs.put("slow", lambda number=number: done.append(number))  # type: ignore[misc]
    with pytest.raises(BusyError, match=f"{WAITING_AT_MOST} requests wait already"):
        jobs.put("slow", lambda: done.append(-1))
    gate.set()
    until(lambda: len(done) > WAITING_AT_MOST, "those that were taken")
