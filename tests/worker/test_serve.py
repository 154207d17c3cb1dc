"""A worker takes a lease, works, hands it back; whatever ends the work is told once and cleaned up once."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

import pytest

from remuda.logbook.timers import Timers
from remuda.tests.worker.recording_link import COORDINATOR, WORKER, RecordingLink
from remuda.wire.conversation import RefusedError
from remuda.wire.messages import (
    AnyMessage,
    Assign,
    ChunkAccepted,
    ChunkId,
    Credit,
    Drain,
    Drained,
    Leave,
    PolicyRef,
    Ready,
    Registered,
    Rejected,
    WorkerFailed,
    WorkerVitals,
)
from remuda.wire.patience import CoordinatorLostError
from remuda.worker.serve import AskedToEndError, HopelessError, TakenOverError, serve
from remuda.worker.shutdown_guard import ShutdownGuard


class ScriptedWork:
    """Notes what it is asked; does what the test says."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.handled: list[AnyMessage] = []
        self.on_step: Callable[[], bool] = lambda: False
        self.on_handle: Callable[[AnyMessage], object] = lambda message: None
        self.on_drain: Callable[[], object] = lambda: None
        self.drained = False
        self.unstored = False
        self.steps_to_drain = 0
        self.timers = Timers()
        self.warnings: list[str] = []

    def handle(self, message: AnyMessage) -> None:
        self.handled.append(message)
        self.on_handle(message)

    def step(self) -> bool:
        self.calls.append("step")
        if "drain" in self.calls:
            self.steps_to_drain -= 1
            self.drained = self.steps_to_drain <= 0
        return self.on_step()

    def drain(self) -> None:
        self.calls.append("drain")
        self.on_drain()

    def close(self) -> None:
        self.calls.append("close")


class Office:
    """A worker with a scripted inbox, which ends when it has nothing left to hear."""

    def __init__(self, *inbox: AnyMessage | Exception) -> None:
        self.guard = ShutdownGuard()
        self.link = RecordingLink(inbox)
        self.link.when_idle = lambda: self.guard.end("the script is over")
        self.works: list[ScriptedWork] = []
        self.make: Callable[[], ScriptedWork] = ScriptedWork

    def begin(self, assign: Assign) -> ScriptedWork:
        work = self.make()
        self.works.append(work)
        return work

    def serve(self) -> str:
        return serve(self.link, self.guard, self.begin)


def assign(lease: int) -> Assign:
    return Assign(lease, COORDINATOR, "test", "/run", "{}", 0, 0, "p", 1)


def credit(lease: int, steps: int) -> Credit:
    return Credit(lease, steps, PolicyRef(), {})


ACCEPTED = ChunkAccepted(ChunkId(WORKER, 1, 0), 10, PolicyRef(), {})


def scripted(on_step: Callable[[], bool]) -> Callable[[], ScriptedWork]:
    """Makes work whose steps do so."""

    def make() -> ScriptedWork:
        work = ScriptedWork()
        work.on_step = on_step
        return work

    return make


def kinds(office: Office) -> list[type]:
    return [type(message) for message in office.link.sent]


def test_a_lease_from_its_assignment_to_its_end() -> None:
    office = Office(credit(7, 10), Drain(7, "over"), ACCEPTED, assign(7), credit(7, 64), Drain(7, "over"))
    warned = ScriptedWork()
    warned.warnings = ["it is old", "x" * 2_000]
    office.make = lambda: warned
    assert office.serve() == "the script is over"
    [work] = office.works
    assert office.link.sent[0] == Ready(7, ["it is old", "x" * 1_000])
    assert kinds(office) == [Ready, WorkerVitals, Drained]
    assert work.handled == [credit(7, 64)]
    assert work.calls.count("drain") == work.calls.count("close") == 1
    assert work.calls[-1] == "close"
    assert office.link.beat_lease == 0


def test_it_goes_on_stepping_until_drained() -> None:
    office = Office(assign(1), Drain(1, "over"), *[credit(1, n) for n in range(5)])

    work = ScriptedWork()
    work.steps_to_drain = 3
    office.make = lambda: work
    office.serve()
    after = work.calls[work.calls.index("drain") :]
    assert after == ["drain", "step", "step", "step", "close"]
    assert kinds(office) == [Ready, WorkerVitals, Drained]


def test_what_concerns_another_lease_never_reaches_the_present_work() -> None:
    office = Office(assign(1), Drain(1, "over"), credit(1, 10), assign(2), credit(1, 99), Drain(1, "old"), ACCEPTED)
    office.serve()
    first, second = office.works
    assert first.handled == []  # it came when the lease had ended
    assert second.handled == [ACCEPTED]  # names no lease: the chunk says whose it is
    assert "drain" not in second.calls[:-2]  # the old Drain drained nothing
    assert second.calls[-2:] == ["drain", "close"], "asked to end, it hands in what it has"
    assert kinds(office) == [Ready, WorkerVitals, Drained, Ready]


def test_while_a_lease_is_prepared_beats_say_so() -> None:
    """Building environments or networks may take minutes, without any progress."""
    office, seen = Office(assign(7)), list[str]()

    def slow_work() -> ScriptedWork:
        seen.append(office.link.doing.phase)
        assert (office.link.beat_lease, office.link.sent) == (7, []), "it is not ready yet, and not idle"
        return ScriptedWork()

    office.make = slow_work

    def end() -> None:
        seen.append(office.link.doing.phase)
        office.guard.end("the script is over")

    office.link.when_idle = end
    office.serve()
    assert seen[:2] == ["preparing", "waiting"]


def test_a_lease_ends_with_how_its_time_was_spent() -> None:
    office = Office(assign(7), Drain(7, "over"))

    def work_a_while() -> ScriptedWork:
        work = ScriptedWork()
        with work.timers("collect"):
            pass
        office.link.activity("waiting", "waiting for credit")
        return work

    office.make = work_a_while
    office.serve()
    [vitals] = office.link.sent_of(WorkerVitals)
    assert vitals.lease == 7
    assert vitals.elapsed_s > 0
    assert vitals.rss_bytes > 1_000_000
    counts = {block.path: block.count for block in vitals.blocks}
    assert counts["collect"] == 1
    assert counts["waiting for credit"] >= 1  # what it said it was doing is what it waits for


def test_told_to_leave_it_lets_go_at_once() -> None:
    office = Office(assign(1), Leave("another incarnation has taken over"))
    assert office.serve() == "another incarnation has taken over"
    assert office.works[0].calls[-1] == "close"
    assert "drain" not in office.works[0].calls
    assert office.link.sent == [Ready(1)]


class Away:
    """A coordinator that is away while its worker has to end, and comes back when this clock says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, back_s: float, *, goes_on: bool = True) -> None:
        self.now_s = 1_000.0
        self.goes_on = goes_on
        self.office = Office(assign(1))
        self.told: list[Registered] = []
        self.back_s = back_s
        self.asked_s = math.inf
        self.work = ScriptedWork()
        self.work.on_drain = self._drained
        self.work.on_step = self._stepped
        self.office.make = lambda: self.work
        self.office.link.when_idle = self._idle
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)

    def serve(self, hand_in_s: float) -> str:
        office = self.office
        with office.guard:
            return serve(office.link, office.guard, office.begin, self.told.append, hand_in_s)

    def _drained(self) -> None:
        self.asked_s, self.work.unstored = self.now_s, True

    def _stepped(self) -> bool:
        self.work.unstored = self.work.unstored and not self.told
        return False

    def _idle(self) -> None:
        """Nothing has come for a second."""
        self.office.guard.end("the job is taken away")
        self.now_s += 1.0
        if self.now_s >= self.asked_s + self.back_s and not self.told:
            news = Registered(COORDINATOR, 1.0, lease=1, goes_on=self.goes_on)
            self.office.link.inbox.extend([Drain(1, "x"), Leave("x"), assign(2), news])


def test_what_only_this_process_has_waits_for_a_coordinator_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is back after 8 s; what it says meanwhile of other work is left to its next worker."""
    away = Away(monkeypatch, back_s=8.0)
    assert away.serve(hand_in_s=17.0) == "the job is taken away"
    assert len(away.told) == 1
    assert not away.work.unstored
    assert 8.0 <= away.now_s - away.asked_s < 17.0
    assert len(away.office.works) == 1
    assert away.work.calls.count("drain") == 1
    assert away.work.calls[-1] == "close"


@pytest.mark.parametrize("hand_in_s", [3.0, 6.0])
def test_it_waits_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch, hand_in_s: float) -> None:
    away = Away(monkeypatch, back_s=8.0)
    away.serve(hand_in_s)
    assert away.work.unstored
    assert away.now_s - away.asked_s == hand_in_s
    assert away.work.calls[-1] == "close"
    over = Away(monkeypatch, back_s=2.0, goes_on=False)
    over.serve(hand_in_s=17.0)
    assert over.now_s - over.asked_s < 4.0, "not under a lease that is over"


@pytest.mark.parametrize("where", ["begin", "step", "handle", "drain", "hand in"])
def test_work_that_was_taken_over_is_let_go_in_one_line(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No failure is reported, and the worker is free for others."""
    then: list[AnyMessage] = [] if where == "hand in" else [Drain(1, "over"), assign(2)]
    office = Office(assign(1), credit(1, 5), *then)

    def taken_over() -> bool:
        raise TakenOverError("another learner has taken over")

    def make() -> ScriptedWork:
        work = ScriptedWork()
        if len(office.works) == 0:
            if where == "begin":
                office.make = ScriptedWork
                taken_over()
            if where == "step":
                work.on_step = taken_over
            if where == "handle":
                work.on_handle = lambda message: taken_over()
            if where in ("drain", "hand in"):
                work.on_drain = taken_over
        return work

    office.make = make
    assert office.serve() == "the script is over"
    assert office.link.sent_of(WorkerFailed) == []
    assert office.link.sent_of(Drained) == [Drained(1)]
    assert capsys.readouterr().err == "lets go of lease 1: another learner has taken over\n"
    if where != "hand in":
        assert office.link.sent_of(Ready)[-1] == Ready(2)
    assert all(work.calls.count("close") == 1 for work in office.works)


@pytest.mark.parametrize(
    ("error", "said", "hopeless"),
    [
        (SystemExit(0), rf"UserExitError: SystemExit\(0\) was raised in {re.escape(__file__)}", False),
        (HopelessError("it diverged"), "HopelessError: it diverged", True),
        (OSError("bad name \udcff " + "x" * 5_000), r"OSError: bad name \? xxx", False),
    ],
)
def test_an_error_is_told_in_a_thousand_characters(error: BaseException, said: str, hopeless: bool) -> None:
    """An environment that asks the process to end ends its lease alone."""
    office = Office(assign(5))

    def fail() -> bool:
        raise error

    office.make = scripted(fail)
    assert office.serve() == "the script is over"
    [failure] = office.link.sent_of(WorkerFailed)
    assert re.match(said, failure.error)
    assert (len(failure.error) <= 1_000, failure.hopeless) == (True, hopeless)


@pytest.mark.parametrize("where", ["begin", "step", "handle", "drain"])
def test_an_exception_is_reported_with_its_traceback_and_ends_the_lease_alone(where: str) -> None:
    office = Office(assign(5), credit(5, 1), Drain(5, "over"))
    later = ScriptedWork()

    def broken() -> ScriptedWork:
        work = ScriptedWork()
        match where:
            case "begin":
                fail()
            case "step":
                work.on_step = fail
            case "handle":
                work.on_handle = lambda message: fail()
            case _:
                work.on_drain = fail
        return work

    def fail() -> bool:
        raise ZeroDivisionError("the environment broke")

    def take_the_next() -> None:
        office.make = lambda: later
        office.link.inbox.append(assign(6))
        office.link.when_idle = lambda: office.guard.end("the script is over")

    office.make = broken
    office.link.when_idle = take_the_next
    assert office.serve() == "the script is over"
    [failure] = office.link.sent_of(WorkerFailed)
    assert failure.lease == 5
    assert failure.error == "ZeroDivisionError: the environment broke"
    assert "in fail" in failure.traceback
    after = office.link.sent[office.link.sent.index(failure) + 1 :]
    assert after == [Drained(5), Ready(6)]  # it tells first, then lets go, and serves again
    assert [work.calls.count("close") for work in office.works] == [1] * (2 if where != "begin" else 1)
    assert later.calls.count("step") > 0


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_after_what_may_have_harmed_the_process_it_ends(error: Exception) -> None:
    office = Office(assign(5))

    def fail() -> bool:
        raise error

    office.make = scripted(fail)
    with pytest.raises(type(error)):
        office.serve()
    assert len(office.link.sent_of(WorkerFailed)) == 1
    assert office.link.sent_of(Drained) == []
    assert office.works[0].calls.count("close") == 1


def test_work_that_fails_and_does_not_let_go_ends_the_process() -> None:
    class Stubborn(ScriptedWork):
        def step(self) -> bool:
            raise ZeroDivisionError("the environment broke")

        def close(self) -> None:
            raise OSError("it cannot be closed")

    office = Office(assign(5))
    office.make = Stubborn
    with pytest.raises(OSError, match="cannot be closed"):
        office.serve()
    assert office.link.sent_of(Drained) == []


def test_work_given_up_because_the_process_is_to_end_is_no_failure() -> None:
    office = Office(assign(1), credit(1, 1))

    def evaluating() -> ScriptedWork:
        work = ScriptedWork()

        def give_up(message: AnyMessage) -> None:
            office.guard.end("asked to by SIGTERM")
            raise AskedToEndError("in the middle of an evaluation")

        work.on_handle = give_up
        return work

    office.make = evaluating
    assert office.serve() == "asked to by SIGTERM"
    assert office.link.sent == [Ready(1)]
    assert office.works[0].calls.count("close") == 1


LOST = CoordinatorLostError("silent for too long")
REFUSED = RefusedError(Rejected("unknown", "not registered here any more"))


@pytest.mark.parametrize("failure", [LOST, REFUSED])
def test_a_link_that_fails_while_the_worker_is_busy_still_says_so(failure: Exception) -> None:
    """The link asks the process to end; that must not look like a worker that left by itself, which its nanny
    would not start again."""
    office = Office(assign(1))

    def step() -> bool:
        office.link.inbox.extend([credit(1, 1), failure])
        office.guard.end("the coordinator is lost or refuses this worker")
        return True

    office.make = scripted(step)
    with pytest.raises(type(failure)):
        office.serve()
    assert office.link.sent == [Ready(1)], "it is not reported"
    assert office.works[0].calls.count("close") == 1
