"""A job whose node does not see the launch's folder: asks, is let in, and follows a coordinator that has moved."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.deploy.slurm import job as slurm_job
from remuda.deploy.slurm.commands import JobState, SlurmError
from remuda.deploy.slurm.job import (
    Answer,
    NotLetInError,
    RemoteJob,
    RemoteJobs,
    answer_comment,
    answer_in,
    key_comment,
    key_in,
)
from remuda.wire import connection_file
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.door import Door
from remuda.wire.keys.authorized import AuthorizedKeys
from remuda.wire.keys.folder import FOLDER, KEY_FILE, KeysFolder, caller_keys
from remuda.wire.messages import PROTOCOL_VERSION, RefusalCounts
from remuda.wire.router import RouterSocket

JOB = "7_0"


@dataclass
class Slurm:
    """Keeps comments, in the place of its controller."""

    comments: dict[str, str] = field(default_factory=dict[str, str])
    asked: int = 0
    away: bool = False

    def note(self, id: str, comment: str) -> None:
        self._answer()
        self.comments[id] = comment

    def comment_of(self, id: str) -> str:
        self._answer()
        self.asked += 1
        return self.comments.get(id, "")

    def jobs(self) -> dict[str, JobState]:
        return {id: JobState(id, "RUNNING", "", "n4", comment) for id, comment in self.comments.items()}

    def _answer(self) -> None:
        if self.away:
            raise SlurmError("scontrol says: no controller")


@dataclass
class Launch:
    """The folder of a launch whose coordinator runs."""

    folder: Path
    slurm: Slurm
    said: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.keys = KeysFolder(self.folder / FOLDER)
        self.keys.save()
        self.guests = RemoteJobs(self.folder / "connection.json", self.said.append)

    def coordinator_at(self, port: int) -> None:
        uuid = "01234567-89ab-cdef-0123-456789abcdef"
        address, key, keys = f"tcp://127.0.0.1:{port}", self.keys.server.public, str(self.keys.path)
        file = ConnectionFile(uuid, address, PROTOCOL_VERSION, "n1", 1, 1, key, keys)
        connection_file.write(self.folder / "connection.json", file)

    def look(self) -> None:
        self.guests.look(self.slurm.jobs())


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of each test: jobs of two tests have the same number."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    made = Slurm()
    monkeypatch.setattr(slurm_job, "note", made.note)
    monkeypatch.setattr(slurm_job, "comment_of", made.comment_of)
    monkeypatch.setenv(KEY_FILE, "")
    return made


@pytest.fixture
def launch(tmp_path: Path, slurm: Slurm) -> Launch:
    made = Launch(tmp_path / "launch", slurm)
    made.coordinator_at(4_711)
    return made


def never() -> bool:
    return False


def test_a_job_that_asks_gets_a_key_with_the_right_of_a_worker(launch: Launch, slurm: Slurm) -> None:
    with RemoteJob(JOB, print) as guest:
        guest.ask(60.0, never, lambda pause_s: launch.look())
        assert guest.connection_file.read_bytes() == (launch.folder / "connection.json").read_bytes()
        found = connection_file.read(guest.connection_file)
        elsewhere = replace(found, keys_dir="/nowhere")
        own = caller_keys(elsewhere, "worker").own
        added = launch.keys.listed()[own.public]
        assert (added.name, added.right) == ("slurm-7_0", "worker")
        assert guest.folder.stat().st_mode & 0o777 == 0o700
        assert own.secret.hex() not in "".join(slurm.comments.values())
    assert not guest.folder.exists()
    assert launch.said == ["job 7_0 on n4 works without the shared folder"]
    launch.look()
    assert len(launch.said) == 1


def test_an_answer_to_the_life_before_is_none_and_the_job_asks_again(launch: Launch, slurm: Slurm) -> None:
    """The launch had seen the question of a job that was requeued, and wrote its answer over that of the next life."""
    late = iter([answer_comment(Answer("a" * 64, b"{}"))])

    def pause(pause_s: float) -> None:
        if (stale := next(late, None)) is not None:
            slurm.comments[JOB] = stale
        else:
            launch.look()

    with RemoteJob(JOB, print) as guest:
        guest.ask(60.0, never, pause)
        own = caller_keys(replace(connection_file.read(guest.connection_file), keys_dir="/nowhere"), "worker").own
        assert own.public in launch.keys.listed()


def test_one_that_is_not_answered_says_what_that_means(slurm: Slurm) -> None:
    now_s = [0.0]

    def pause(pause_s: float) -> None:
        now_s[0] += pause_s

    with (
        RemoteJob(JOB, print, lambda: now_s[0]) as guest,
        pytest.raises(NotLetInError, match="keep `remuda launch` running"),
    ):
        guest.ask(100.0, never, pause)
    assert 100.0 <= now_s[0] <= 111.0
    assert slurm.asked < 20, "Slurm is not asked all the time"


def test_a_controller_that_is_away_is_asked_again_and_said_once(launch: Launch, slurm: Slurm) -> None:
    said: list[str] = []
    pauses = iter(range(10))

    def pause(pause_s: float) -> None:
        slurm.away = next(pauses) < 3
        if not slurm.away:
            launch.look()

    slurm.away = True
    with RemoteJob(JOB, said.append) as guest:
        guest.ask(1e9, never, pause)
    assert said == ["waiting to be let in: scontrol says: no controller"]


@contextmanager
def letting_in(launch: Launch) -> Generator[Door]:
    """A coordinator's socket at the address of the launch's file, as long as this is open."""
    authorized = AuthorizedKeys(launch.keys.authorized)
    door, over = Door(launch.keys.server, authorized), threading.Event()
    with closing(RouterSocket("tcp://127.0.0.1:0", door)) as router:

        def keep() -> None:
            while not over.is_set():
                authorized.look()
                router.wait(0.02)
                router.look_after(0.0)

        launch.coordinator_at(int(router.address.rpartition(":")[2]))
        keeper = threading.Thread(target=keep)
        keeper.start()
        try:
            yield door
        finally:
            over.set()
            keeper.join()


def test_a_coordinator_that_has_moved_is_found_again_and_slurm_is_asked_only_then(launch: Launch, slurm: Slurm) -> None:
    with RemoteJob(JOB, print) as guest:
        with letting_in(launch) as door:
            guest.ask(60.0, never, lambda pause_s: launch.look())
            asked = slurm.asked
            for _ in range(3):
                guest.look()
            assert slurm.asked == asked, "the coordinator is where it was"
            assert door.refusals.counts == RefusalCounts(), "looking is no attempt of a stranger"
        launch.coordinator_at(5_000)
        launch.look()
        guest.look()
        assert connection_file.read(guest.connection_file).address == "tcp://127.0.0.1:5000"


def test_while_there_is_no_coordinator_nobody_is_let_in_and_the_launch_goes_on(launch: Launch, slurm: Slurm) -> None:
    (launch.folder / "connection.json").unlink()
    slurm.comments = {JOB: key_comment("a" * 64), "8": "a comment of somebody"}
    launch.look()
    assert [each for each in launch.keys.listed().values() if each.name.startswith("slurm")] == []
    assert len(launch.said) == 1
    assert "wait: " in launch.said[0]
    launch.coordinator_at(1)
    launch.look()
    assert slurm.comments["8"] == "a comment of somebody"
    assert answer_in(slurm.comments[JOB]) is not None


@given(st.text(max_size=80))
def test_other_comments_are_no_question_and_no_answer(text: str) -> None:
    assert key_in(text) is None
    assert key_in(f"remuda-key:{text}") in (None, text)
    assert answer_in(text) is None
    answer_in(f"remuda-connection:{text}")
    answer_in(f"remuda-connection:{'a' * 64}:{text}")


def test_a_lost_answer_is_given_again(launch: Launch, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.comments = {"7_0": key_comment("a" * 64), "7_1": key_comment("b" * 64)}
    lost = ["7_0"]

    def note(id: str, comment: str) -> None:
        if id in lost:
            lost.remove(id)
            raise SlurmError("slurmctld is away")
        slurm.note(id, comment)

    monkeypatch.setattr(slurm_job, "note", note)
    launch.look()
    assert answer_in(slurm.comments["7_1"]) is not None
    launch.look()
    assert answer_in(slurm.comments["7_0"]) is not None
    assert {each.name for each in launch.keys.listed().values()} >= {"slurm-7_0", "slurm-7_1"}


def test_the_key_of_a_job_that_has_ended_opens_nothing_any_more(launch: Launch, slurm: Slurm) -> None:
    """A job that was killed has left it on its node."""
    slurm.comments = {"7_0": key_comment("a" * 64)}
    launch.look()
    assert "slurm-7_0" in {each.name for each in launch.keys.listed().values()}
    launch.guests.look({"7_0": JobState("7_0", "TIMEOUT")})
    assert "slurm-7_0" not in {each.name for each in launch.keys.listed().values()}
    slurm.comments = {"7_0": key_comment("c" * 64)}  # requeued
    launch.look()
    assert "slurm-7_0" in {each.name for each in launch.keys.listed().values()}
