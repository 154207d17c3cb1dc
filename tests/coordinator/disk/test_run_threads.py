"""All that the coordinator does on disks: one run's disk holds up that run, is reported, and in the end fails it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.coordinator.disk.disk import SLOW_S, Disk, Found
from remuda.coordinator.disk.jobs import Wakeup
from remuda.coordinator.disk.room import check_room
from remuda.coordinator.disk.run_folders import RunFolders
from remuda.coordinator.disk.run_thread import PATIENCE_S, STALL_S
from remuda.coordinator.disk.runs_folder import RunsFolder, RunWriter
from remuda.coordinator.effects import Abandon, CloseRun, FindRoom, PrepareRun, Requester
from remuda.coordinator.events import HeldUp, RecoveredRun, RunBroken, RunPrepared, RunRecovered, RunRefused
from remuda.coordinator.settings import Hold
from remuda.logbook.lines import TextLog
from remuda.storage.run_folder import RunFolder
from remuda.tests.coordinator.disk.test_run_thread import Clock
from remuda.tests.patience import HANG_S, until
from remuda.tests.worker.leases import EXPERIMENT, small_config
from remuda.training.effects import LogLine
from remuda.training.journal_entry import JournalEntry
from remuda.training.run_snapshot import FinishedRun
from remuda.training.snapshot import LeaseHolder
from remuda.wire.messages import Submit
from remuda.worker.process import open_files

OTHER = "eeeeeeee-0000-4000-8000-000000000002"
SUBMIT = Submit("small", small_config().model_dump_json(), "mine")


class Scene:
    """A Disk with a clock of its own."""

    def __init__(self, runs: Path) -> None:
        self.clock, self.wakeup = Clock(), Wakeup()
        self.folders, self.herd = RunFolders(runs), RunsFolder(runs)
        self.disk = Disk(self.folders, self.herd, self.wakeup.wake, self.clock)

    def found(self) -> Found:
        """The next thing that the state machine is told."""
        while True:
            self.disk.journaled()
            if found := self.disk.found():
                [event] = found
                return event
            self.wakeup.wait(HANG_S)

    def prepare(self, experiment: str = EXPERIMENT, run_dir: str = "mine") -> RunFolder:
        self.disk.prepare(PrepareRun(Requester(b"client", 7), experiment, replace(SUBMIT, run_dir=run_dir)))
        prepared = self.found()
        assert isinstance(prepared, RunPrepared), prepared
        return RunFolder(Path(prepared.experiment.identity.run_dir))

    def say(self, experiment: str, text: str = "a line") -> None:
        """Have something written of this run."""
        self.disk.write([], [LogLine(experiment, text)])

    def close(self) -> list[str]:
        late = self.disk.close()
        self.folders.close()
        self.herd.close()
        self.wakeup.close()
        return late


@pytest.fixture
def scene(tmp_path: Path) -> Generator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


@contextmanager
def stuck(monkeypatch: pytest.MonkeyPatch, run: RunFolder, error: OSError | None = None) -> Generator[threading.Event]:
    """The disk of one run refuses, or does not answer, while the body runs; yields what is set once it is asked."""
    gate, asked = threading.Event(), threading.Event()

    def log(path: Path) -> TextLog:
        if path == run.commander_log and not gate.is_set():
            asked.set()
            if error is not None:
                raise error
            assert gate.wait(HANG_S)
        return TextLog(path)

    monkeypatch.setattr("remuda.coordinator.disk.run_folder.TextLog", log)
    try:
        yield asked
    finally:
        gate.set()


def test_a_run_may_start_over_before_its_files_are_closed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sees its end may submit it again at once, however slow its disk is just then."""
    mine = scene.prepare()
    again = replace(SUBMIT, on_exists="force")
    with stuck(monkeypatch, mine) as asked:
        scene.say(EXPERIMENT)
        assert asked.wait(HANG_S)
        scene.disk.write([], [CloseRun(EXPERIMENT, frozenset())])
        scene.disk.prepare(PrepareRun(Requester(b"client", 8), OTHER, again))
    assert isinstance(scene.found(), RunPrepared)


def test_a_disk_that_does_not_answer_holds_up_its_run_alone(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = scene.prepare(), scene.prepare(OTHER, "other")
    with stuck(monkeypatch, mine) as asked:
        scene.say(EXPERIMENT)
        assert asked.wait(HANG_S)
        scene.say(OTHER, "goes on")
        rests = f"writer of {OTHER}"
        until(lambda: rests not in {thread.name for thread in threading.enumerate()}, "the other one is written")
        assert "goes on" in other.commander_log.read_text()
        assert scene.disk.lag_s == 0.0
        scene.clock.now_s += STALL_S + 0.1
        assert scene.disk.lag_s == pytest.approx(STALL_S + 0.1)
        assert not _held(scene, "its disk does not answer").journals
        assert scene.disk.look() == [], "said once"
        scene.prepare("eeeeeeee-0000-4000-8000-000000000003", "third")  # a submission is served meanwhile
    until(lambda: scene.disk.look() == [HeldUp(EXPERIMENT, None)], "it goes on")


def test_a_disk_that_refuses_for_too_long_fails_its_run(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = scene.prepare()
    with stuck(monkeypatch, mine, OSError(30, "Read-only file system")) as asked:
        scene.say(EXPERIMENT)
        assert asked.wait(HANG_S)
        scene.clock.now_s += STALL_S + 0.1
        _held(scene, "its disk refuses: [Errno 30] Read-only file system")
        [broken] = _later(scene, PATIENCE_S)
        assert isinstance(broken, RunBroken)
        assert broken.reason == (
            "its disk refuses: [Errno 30] Read-only file system (600 s were waited); once it is well, type: "
            f"remuda submit --resume --run-dir {mine.root}"
        )


def _held(scene: Scene, why: str) -> Hold:
    """The hold that is reported once the disk has said why."""
    found: list[Hold] = []

    def look() -> bool:
        found.extend(held.hold for held in scene.disk.look() if isinstance(held, HeldUp) and held.hold is not None)
        return bool(found) and why in found[-1].why

    until(look, "a run is held up")
    return found[-1]


@contextmanager
def no_room(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """The disk of all runs has no room for anything but the journal."""
    full = threading.Event()
    full.set()

    def check(folder: Path, size_bytes: int) -> None:
        if full.is_set():
            raise OSError(28, f"no room for {size_bytes} bytes")
        check_room(folder, size_bytes)

    monkeypatch.setattr("remuda.coordinator.disk.run_folder.check_room", check)
    yield
    full.clear()


def test_a_run_whose_workers_lack_room_is_held_up(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = _running(scene)
    run = RunFolder(Path(entry.snapshot.identity.run_dir))
    with no_room(monkeypatch):
        scene.disk.write([entry], [FindRoom(EXPERIMENT, 1_000_000)])
        assert scene.disk.look() == [], "a moment may pass until something is deleted"
        scene.clock.now_s += STALL_S + 0.1
        assert _held(scene, "its disk refuses: [Errno 28] no room for 1000000 bytes").journals
        scene.disk.write([entry], [LogLine(EXPERIMENT, "is held up")])
        until(lambda: "is held up" in run.commander_log.read_text(), "the log says it")
        until(lambda: scene.disk.journaled() and not scene.disk.waits_for(EXPERIMENT), "the journal is written")
    scene.clock.now_s += 1.5  # it looks again
    scene.disk.write([entry], [])
    until(lambda: scene.disk.look() == [HeldUp(EXPERIMENT, None)], "it goes on")
    assert [*run.data.iterdir()] == [], "nothing is left of the looking"


def test_a_restart_neither_ends_a_hold_nor_begins_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    with no_room(monkeypatch):
        scene.disk.write([_running(scene)], [FindRoom(EXPERIMENT, 1_000_000)])
        scene.clock.now_s += 300.0
        before = _held(scene, "no room for 1000000 bytes")
        assert scene.close() == []
        scene = Scene(tmp_path)
        scene.disk.recover(scene.herd.unfinished())
        found = scene.found()
        assert isinstance(found, RunRecovered)
        assert isinstance(found.run, RecoveredRun)
        hold = found.run.hold
        assert hold is not None
        assert (hold.why, hold.journals) == (before.why, True)
        assert 100.0 < hold.until_s - scene.clock.now_s <= 300.0
        assert scene.disk.look() == [], "it is still held up"
        [broken] = _later(scene, 300.0)
        assert isinstance(broken, RunBroken)
        assert "(600 s were waited)" in broken.reason
        assert scene.close() == []
    scene = Scene(tmp_path)
    scene.disk.recover(scene.herd.unfinished())
    scene.found()
    until(lambda: scene.disk.look() == [HeldUp(EXPERIMENT, None)], "there is room: it is not too late to go on")
    assert scene.close() == []
    herd = RunsFolder(tmp_path)
    assert herd.held() == {}
    herd.close()


def test_a_run_on_a_full_disk_is_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    entry = _running(scene)
    scene.disk.write([entry], [])
    assert scene.close() == []

    def refuse(*given: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        for module in ("run_folder", "run_folders"):
            full.setattr(f"remuda.coordinator.disk.{module}.show_missed", refuse)
        scene = Scene(tmp_path)
        scene.disk.recover(scene.herd.unfinished())
        found = scene.found()
        assert isinstance(found, RunRecovered)
        assert isinstance(found.run, RecoveredRun), "it is not given up as one that cannot be recovered"
        scene.disk.write([entry], [])
        scene.clock.now_s += STALL_S + 0.1
        assert not _held(scene, "its disk refuses: [Errno 28] No space left on device").journals
    until(lambda: scene.disk.journaled() and not scene.disk.waits_for(EXPERIMENT), "there is room, and it goes on")
    assert scene.close() == []


def _later(scene: Scene, seconds: float) -> list[HeldUp | RunBroken]:
    scene.clock.now_s += seconds
    return scene.disk.look()


def broken_run(scene: Scene) -> Abandon:
    """Prepare a run and break it off; returns what then is asked of disks."""
    scene.disk.prepare(PrepareRun(Requester(b"client", 7), EXPERIMENT, SUBMIT))
    prepared = scene.found()
    assert isinstance(prepared, RunPrepared)
    experiment = prepared.experiment
    experiment.break_off("its disk refuses", 0.0)
    return Abandon(EXPERIMENT, FinishedRun.of(experiment.identity, experiment.status(0.0)))


def test_a_run_that_is_abandoned_is_listed_as_over_and_its_folder_is_free(scene: Scene, tmp_path: Path) -> None:
    scene.disk.write([], [LogLine(EXPERIMENT, "has failed", "error"), broken_run(scene)])
    assert scene.close() == []
    assert "[ERROR] has failed" in RunFolder(tmp_path / "mine").commander_log.read_text()
    herd = RunsFolder(tmp_path)
    [listed] = herd.finished()
    assert (listed.identity.id, listed.state, listed.last.reason) == (EXPERIMENT, "failed", "its disk refuses")
    herd.close()
    again = Scene(tmp_path)
    again.disk.prepare(PrepareRun(Requester(b"client", 7), OTHER, replace(SUBMIT, on_exists="force")))
    assert isinstance(again.found(), RunPrepared)
    again.close()


def test_a_coordinator_that_ends_names_silent_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.coordinator.disk.disk.END_S", 0.0)
    scene = Scene(tmp_path)
    mine = scene.prepare()
    with stuck(monkeypatch, mine) as asked:
        scene.say(EXPERIMENT)
        assert asked.wait(HANG_S)
        assert scene.disk.close() == [EXPERIMENT]
    scene.close()


@pytest.mark.parametrize("earlier", ["refused", "accepted"])
def test_what_was_said_of_the_herd_while_a_run_waited_stands_in_its_log_once(scene: Scene, earlier: str) -> None:
    """In that of the first run also what was said before it was submitted, as workers may join before it."""
    if earlier == "refused":
        scene.disk.prepare(PrepareRun(Requester(b"client", 7), OTHER, replace(SUBMIT, config_json="{}")))
        assert isinstance(scene.found(), RunRefused)
    elif earlier == "accepted":
        scene.prepare(OTHER, "other")
    scene.disk.write([], [LogLine(None, "before it was submitted")])
    scene.disk.prepare(PrepareRun(Requester(b"client", 7), EXPERIMENT, SUBMIT))
    prepared = scene.found()
    assert isinstance(prepared, RunPrepared)
    scene.disk.write([], [LogLine(None, "while it waited")])
    experiment = prepared.experiment
    experiment.assign(LeaseHolder(1, OTHER, 1, "learner", "here", 1), 0.0)
    for text in ("as it began", "later"):
        scene.disk.write(experiment.entries(1, 0.0), [LogLine(None, text)])
    assert scene.disk.close() == []
    log = RunFolder(Path(experiment.identity.run_dir)).coordinator_log.read_text()
    before = [] if earlier == "accepted" else ["before it was submitted"]
    assert [line.partition("] ")[2] for line in log.splitlines()] == [
        *before,
        "while it waited",
        "as it began",
        "later",
    ]


def _running(scene: Scene) -> JournalEntry:
    """What a turn of a run that goes on has to be journaled."""
    scene.disk.prepare(PrepareRun(Requester(b"client", 7), EXPERIMENT, SUBMIT))
    prepared = scene.found()
    assert isinstance(prepared, RunPrepared)
    experiment = prepared.experiment
    experiment.assign(LeaseHolder(1, OTHER, 1, "learner", "here", 1), 0.0)
    [entry] = experiment.entries(1, 0.0)
    return entry


def test_a_turn_waits_once_for_a_slow_disk(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, gate = _running(scene), threading.Event()
    monkeypatch.setattr(RunWriter, "journal", lambda writer, turns: gate.wait(HANG_S))
    monkeypatch.setattr("remuda.coordinator.disk.disk.QUICK_S", 0.001)
    scene.disk.write([entry], [])
    assert scene.disk.waits_for(EXPERIMENT) == 1
    monkeypatch.setattr("remuda.coordinator.disk.disk.QUICK_S", 10 * HANG_S)
    scene.disk.write([entry], [])
    assert scene.disk.waits_for(EXPERIMENT) == 2, "it is busy: nobody waits"
    gate.set()
    until(lambda: scene.disk.journaled() and not scene.disk.waits_for(EXPERIMENT), "the disk answers")
    gate.clear()
    scene.disk.write([entry], [])
    assert scene.disk.waits_for(EXPERIMENT) == 3, "it was slow a moment ago: nobody waits"
    gate.set()
    until(lambda: scene.disk.journaled() and not scene.disk.waits_for(EXPERIMENT), "the disk answers again")
    scene.clock.now_s += SLOW_S + 0.1
    scene.disk.write([entry], [])
    assert [each.number for each in scene.disk.journaled()] == [4], "this turn has waited"


def test_a_turn_does_not_wait_for_a_journal_that_is_broken(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(writer: object, turns: object) -> None:
        raise ValueError("not to be written")

    entry = _running(scene)
    monkeypatch.setattr(RunWriter, "journal", fail)
    monkeypatch.setattr("remuda.coordinator.disk.disk.QUICK_S", 10 * HANG_S)
    scene.disk.write([entry], [])
    [broken] = scene.disk.found()
    assert isinstance(broken, RunBroken)
    assert (broken.experiment, broken.reason) == (EXPERIMENT, "ValueError: not to be written")


def test_queued_runs_hold_no_thread_and_no_file(scene: Scene) -> None:
    before, open_before = {thread.name for thread in threading.enumerate()}, open_files()
    for number in range(20):
        id = f"eeeeeeee-0000-4000-8000-{number:012d}"
        run = scene.prepare(id, f"run{number}")
        scene.say(id)
        with pytest.raises(FileNotFoundError):
            RunFolder(run.root).owner.stat()
    until(lambda: not {thread.name for thread in threading.enumerate()} - before, "their threads are gone")
    assert open_files() <= open_before


def test_a_submission_that_meets_an_error_is_refused_and_says_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that a run's folder, config or journal may hold ends the coordinator."""

    def fail(*given: object) -> None:
        raise MemoryError("cannot allocate")

    monkeypatch.setattr("remuda.coordinator.disk.disk.prepared_experiment", fail)
    scene.disk.prepare(PrepareRun(Requester(b"client", 7), EXPERIMENT, SUBMIT))
    refused = scene.found()
    assert isinstance(refused, RunRefused)
    assert "MemoryError while the run was prepared: cannot allocate" in refused.rejection.reason
    assert "Traceback" in capsys.readouterr().err
