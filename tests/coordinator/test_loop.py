"""The coordinator's loop goes on whatever comes of one message, and ends when it is told to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from remuda.client import Client
from remuda.coordinator.disk.disk import Disk
from remuda.coordinator.disk.run_folders import RunFolders
from remuda.coordinator.disk.runs_folder import RunsFolder
from remuda.coordinator.measuring import INTERVAL_S, SAY_INTERVAL_S, WINDOW_S, Measuring, ThrottledLines, TurnWatch
from remuda.coordinator.monitoring.snapshot import RunMeasures, Snapshot
from remuda.coordinator.service import Service
from remuda.coordinator.settings import Settings
from remuda.tests.coordinator.configs import config
from remuda.tests.coordinator.simulation import World
from remuda.tests.patience import HANG_S, until
from remuda.wire import codec, sockets
from remuda.wire.connection_file import read
from remuda.wire.conversation import UnreachableError
from remuda.wire.messages import PROTOCOL_VERSION, CoordinatorLoad, RefusalCounts
from remuda.worker.shutdown_guard import ShutdownGuard


@contextmanager
def running(folder: Path) -> Generator[Path]:
    """A coordinator on a thread of its own; yields its connection file."""
    guard, file = ShutdownGuard(), folder / "connection.json"
    service = Service(Settings(folder / "runs", file), guard)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        until(file.exists, "the connection file")
        yield file
    finally:
        guard.end("the test is over")
        thread.join(HANG_S)
        assert not thread.is_alive()


def test_an_answer_that_is_too_large_to_be_sent_is_said_and_the_next_question_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    with running(tmp_path) as file, Client(file, answer_deadline_s=0.5) as client:

        def said_it() -> bool:
            """On a busy machine a question may not even arrive as long as it is asked."""
            with pytest.raises(UnreachableError):
                client.status()
            said.append(capsys.readouterr().err)
            return "Status cannot be sent: the header has" in "".join(said)

        with monkeypatch.context() as patch:
            few = partial(codec.encode, protocol=PROTOCOL_VERSION, limits=codec.Limits(100, 0, 0))
            patch.setattr(
                sockets, "encode", lambda envelope, **_: few(envelope)
            )  # a question has less, the answer more
            until(said_it, "what cannot be sent")
        with Client(file) as patient:
            assert patient.status().workers == []


def test_a_coordinator_that_cannot_say_where_it_is_lets_go_of_its_folder(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    service = Service(Settings(runs, tmp_path / "nowhere" / "connection.json", persistent=True), ShutdownGuard())
    with pytest.raises(FileNotFoundError):
        service.run()
    RunsFolder(runs).close()


def test_one_that_hands_over_leaves_its_connection_file_so_that_workers_wait(tmp_path: Path) -> None:
    runs, own = tmp_path / "runs", tmp_path / "own"
    runs.mkdir()
    settings = Settings(runs, own / "connection.json", persistent=True, own_dir=own, hands_over=True)
    epochs: list[int] = []
    for _ in range(2):
        guard = ShutdownGuard()
        thread = threading.Thread(target=Service(settings, guard).run)
        thread.start()
        try:
            until(settings.connection_file.exists, "the connection file")
            with Client(settings.connection_file) as client:
                assert client.status().experiments == []
        finally:
            guard.end("the walltime is over")
            thread.join(HANG_S)
        epochs.append(read(settings.connection_file).epoch)
    assert epochs == [1, 2]
    assert (own / ".keys" / "coordinator").exists()
    assert list(runs.iterdir()) == [], "another coordinator may own the runs folder"


def test_a_flood_becomes_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 100.0
    throttled_lines = ThrottledLines(lambda: now_s)
    for step in range(1_000):
        now_s = 100.0 + step * INTERVAL_S / 100
        throttled_lines.say(f"stranger {step}")
    printed = capsys.readouterr().err.splitlines()
    assert printed == [f"stranger {step}" for step in range(0, 1_000, 100)]


def test_nobody_forges_a_line_or_controls_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    ThrottledLines(lambda: 1.0).say("a name\n[2026-11-23] all is well\x1b[2J")
    first, second = capsys.readouterr().err.splitlines()
    assert first == "a name"
    assert second == r" [2026-11-23] all is well\x1b[2J"


WATCH = TurnWatch(lambda text: None)


class Scene:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.worked_s = 0.0
        self.said: list[str] = []
        self.watch = TurnWatch(self.said.append, lambda: self.now_s, lambda: self.worked_s)

    def turn(self, *, decide_s: float = 0.0, answer_s: float = 0.0) -> None:
        self.watch.begin()
        for name, took_s in (("decide", decide_s), ("answer", answer_s)):
            self.now_s += took_s
            self.watch.part(name)
        self.watch.end()


def test_a_long_turn_is_said_with_what_took_it_and_how_much_of_it_was_work() -> None:
    scene = Scene()
    scene.watch.begin()
    scene.now_s, scene.worked_s = 0.3, 0.01
    scene.watch.part("decide")
    scene.now_s = 0.31
    scene.watch.part("answer")
    scene.watch.end()
    assert scene.said == [
        "a turn of the coordinator's loop took 0.310 s (0.010 s of processor time): 0.300 s to decide"
    ]


def test_many_long_turns_are_said_as_one_line_now_and_then_that_names_the_longest() -> None:
    scene = Scene()
    for decide_s in (0.06, 0.5, 0.07):
        scene.turn(decide_s=decide_s)
    assert len(scene.said) == 1, "the first at once"
    scene.now_s += SAY_INTERVAL_S
    scene.turn()
    assert len(scene.said) == 2
    assert "took 0.500 s" in scene.said[1]
    scene.now_s += SAY_INTERVAL_S
    scene.turn()
    assert len(scene.said) == 2


def test_the_longest_turn_of_the_last_minute_is_forgotten_and_the_longest_ever_is_not() -> None:
    scene = Scene()
    scene.turn(decide_s=2.0)
    for _ in range(2 * int(WINDOW_S)):
        scene.now_s += 1.0
        scene.turn(decide_s=0.001)
    assert round(scene.watch.longest_s, 6) == 0.001
    assert scene.watch.longest_ever_s == 2.0
    assert len(scene.watch._buckets) <= 14, "memory that does not grow"  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(RunFolders(tmp_path), None, lambda: None)


def measured(world: World, disk: Disk) -> Snapshot:
    measuring = Measuring(world.coordinator, disk, WATCH, print)
    measuring.load = CoordinatorLoad(descriptors=5, descriptor_limit=9)
    return measuring(RefusalCounts(no_key=3), 4)


def test_workers_and_runs_are_those_of_the_status(disk: Disk) -> None:
    world = World(config()).started()
    seen: set[str] = set()
    while not world.status().experiments or world.experiment().state != "finished":
        world.step()
        status, snapshot = world.status(), measured(world, disk)
        states = Counter((worker.role, worker.state) for worker in status.workers)
        counts = {(role, state): n for role, each in snapshot.workers.items() for state, n in each.items() if n}
        assert counts == states
        assert [(run.experiment, run.env_step) for run in snapshot.runs] == [
            (experiment.id, experiment.env_step) for experiment in status.experiments
        ]
        seen |= {state for _, state in states}
    assert {"idle", "busy", "draining"} <= seen
    assert snapshot.runs == [RunMeasures.of(status) for status in world.status().experiments]
