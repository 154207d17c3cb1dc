"""The process that Ray starts: which connection file it uses, and where its secret key stays."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec
import msgspec.structs
import pytest

from remuda.deploy import roles
from remuda.deploy.ray.engine import Introduction, Order, RayWorker, UsedError
from remuda.tests.keys import connection_to
from remuda.wire import connection_file
from remuda.wire.keys.folder import KEY_FILE
from remuda.wire.keys.secret_file import read_secret
from remuda.worker.link import WorkerIdentity

UUID = "01234567-89ab-cdef-0123-456789abcdef"


class Played:
    """In place of a worker: it looks at what it is given."""

    def __init__(self) -> None:
        self.file = self.key = Path()
        self.read = connection_to("tcp://127.0.0.1:1")
        self.public = ""

    def __call__(self, role: str, identity: WorkerIdentity, file: Path, **more: object) -> int:
        assert (role, identity.uuid, identity.incarnation) == ("collector", UUID, 3)
        assert (more["former_exit"], more["runs_dirs"]) == ("a request to end", [Path("/runs")])
        self.file, self.key = file, Path(os.environ[KEY_FILE])
        self.read, self.public = connection_file.read(file), read_secret(self.key).public
        return 4


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    monkeypatch.setattr(roles, "run_worker", played)
    monkeypatch.setenv(KEY_FILE, "nowhere")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    return played


def order(path: Path, text: str) -> bytes:
    return msgspec.json.encode(Order(UUID, 3, "a request to end", str(path), text, "/runs", 60.0, None))


def test_where_the_file_cannot_be_seen_it_takes_the_copy_and_the_key_of_its_own(tmp_path: Path, played: Played) -> None:
    here = tmp_path / "connection.json"
    connection_file.write(here, connection_to("tcp://127.0.0.1:5555"))
    worker = RayWorker("collector")
    introduction = msgspec.json.decode(worker.introduce(), type=Introduction)
    assert worker.work(order(tmp_path / "elsewhere.json", here.read_text())) == 4
    assert played.read == connection_file.read(here)
    assert played.public == introduction.public_key
    assert introduction.pid == os.getpid()
    assert not played.file.exists()
    assert not played.key.exists(), "what holds the secret key is gone with the work"


def test_leftovers_of_a_killed_process_go(tmp_path: Path, played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    left = tmp_path / "tmp" / f"remuda-actor-{UUID}" / "key"
    left.parent.mkdir(parents=True)
    left.write_text("of a process that was killed")
    here = tmp_path / "connection.json"
    connection_file.write(here, connection_to("tcp://127.0.0.1:5555"))
    worker = RayWorker("collector")
    introduction = msgspec.json.decode(worker.introduce(), type=Introduction)
    assert worker.work(order(here, here.read_text())) == 4
    assert played.public == introduction.public_key, "not the key that was left"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_file_of_another_coordinator_at_that_path_is_not_used(tmp_path: Path, played: Played) -> None:
    here, told = tmp_path / "connection.json", tmp_path / "told.json"
    connection_file.write(here, msgspec.structs.replace(connection_to("tcp://127.0.0.1:5555"), server_key="0" * 64))
    connection_file.write(told, connection_to("tcp://127.0.0.1:6666"))
    assert RayWorker("collector").work(order(here, told.read_text())) == 4
    assert played.read.address == "tcp://127.0.0.1:6666"


def test_a_process_that_has_worked_does_not_offer_itself_again(tmp_path: Path, played: Played) -> None:
    """Ray may have lost sight of it while it worked, so that nobody took its exit code."""
    here = tmp_path / "connection.json"
    connection_file.write(here, connection_to("tcp://127.0.0.1:5555"))
    worker = RayWorker("collector")
    worker.introduce()
    worker.introduce()
    assert worker.work(order(here, here.read_text())) == 4
    with pytest.raises(UsedError, match="has been a worker already"):
        worker.introduce()
