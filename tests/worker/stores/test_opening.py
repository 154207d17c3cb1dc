"""A worker finds out whether it sees the runs folder, and works either way."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.buffer.chunk import read_chunk
from remuda.storage.existing_folder import RunFolderError
from remuda.storage.folder_token import FolderToken
from remuda.tests.keys import caller
from remuda.tests.patience import until
from remuda.tests.worker.leases import assign_to, small_config
from remuda.tests.worker.stores.served import WORKER, Ranch, chunk
from remuda.tests.worker.stores.test_ports import at_last
from remuda.wire.messages import Assign, Registered, Role
from remuda.worker.stores.opening import NoFolderError, WorkerStores

COORDINATOR = "01234567-89ab-cdef-0123-456789abcdef"


class Worker:
    """A worker's stores, and what its coordinator tells it."""

    def __init__(self, ranch: Ranch, *places: Path, role: Role = "collector") -> None:
        self.ranch = ranch
        self.token = FolderToken(ranch.runs_dir, COORDINATOR)
        self.token.write()
        self.stores = WorkerStores(role, places, caller, lambda: "127.0.0.1", lambda: None)
        self.news = Registered(
            COORDINATOR,
            1.0,
            runs_dir=str(ranch.runs_dir),
            token=self.token.digest,
            token_there=True,
            stream_port=ranch.port,
        )

    def assign(self) -> Assign:
        return replace(assign_to(self.ranch.run, small_config()), grant=self.ranch.grant())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert list(place.glob("remuda-worker-*")) == [], "a worker leaves nothing"


def test_who_sees_it_under_another_name_writes_there_too(ranch: Ranch, temporary: Path, tmp_path: Path) -> None:
    """As where it is mounted elsewhere on this host: no path that came by message is opened."""
    (tmp_path / "mounted").symlink_to(ranch.runs_dir)
    worker = Worker(ranch, tmp_path / "mounted")
    told = replace(worker.news, runs_dir="/not/here")
    worker.stores.registered(told)
    stores = worker.stores.begin(replace(worker.assign(), run_dir="/not/here/run"))
    assert stores.folder.root == tmp_path / "mounted" / "run"
    worker.stores.close()


def test_a_run_folder_outside_is_refused(ranch: Ranch, temporary: Path) -> None:
    worker = Worker(ranch, ranch.runs_dir)
    worker.stores.registered(replace(worker.news, runs_dir="/not/here"))
    with pytest.raises((RunFolderError, ValueError)):
        worker.stores.begin(replace(worker.assign(), run_dir="/not/here/../../etc"))
    worker.stores.close()


def test_who_does_not_see_it_works_by_stream(ranch: Ranch, temporary: Path) -> None:
    """Although the path that the coordinator tells can be opened on this machine: it is only a name."""
    worker = Worker(ranch, ranch.elsewhere)
    with ranch.serve():
        worker.stores.registered(worker.news)
        stores = worker.stores.begin(worker.assign())
        assert ranch.runs_dir not in stores.folder.root.parents
        log = stores.folder.worker_log("collector", WORKER, 1)
        log.write_text("[2026-01-01 00:00:00][a.py:1][INFO] hello\n")
        stores.folder.env_spec.write_text("{}")
        stores.describe()
        announced = at_last(lambda: stores.payloads.write(*chunk(0)))
        read_chunk(ranch.run.data / announced.file, announced)
        stores.close()
        worker.stores.close()
        assert ranch.run.worker_log("collector", WORKER, 1).read_text() == "[2026-01-01 00:00:00][a.py:1][INFO] hello\n"
        until(ranch.run.env_spec.exists, "the description is there")


def test_the_choice_is_made_again_for_each_lease(ranch: Ranch, temporary: Path) -> None:
    """A file system may be mounted later, or be gone."""
    worker = Worker(ranch, ranch.runs_dir)
    worker.stores.registered(worker.news)
    stores = worker.stores.begin(worker.assign())
    assert stores.folder == ranch.run
    stores.payloads.write(*chunk(0))
    assert len(list(ranch.run.data.iterdir())) == 1
    worker.token.remove()
    assert worker.stores.begin(worker.assign()).folder != ranch.run
    worker.token.write()
    assert worker.stores.begin(worker.assign()).folder == ranch.run
    worker.stores.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_a_failure_of_the_streams_the_next_lease_has_others(ranch: Ranch, temporary: Path) -> None:
    worker = Worker(ranch, ranch.elsewhere)
    with ranch.serve():
        worker.stores.registered(worker.news)
        stores = worker.stores.begin(worker.assign())
        assert worker.stores._client is not None

        def fail(now_s: float) -> None:
            raise OSError("no memory")

        worker.stores._client._do(fail)
        with pytest.raises(OSError, match="the thread that carries files has failed"):
            at_last(lambda: stores.payloads.write(*chunk(0)))
        stores.close()
        stores = worker.stores.begin(worker.assign())
        announced = at_last(lambda: stores.payloads.write(*chunk(1)))
        read_chunk(ranch.run.data / announced.file, announced)
        log = stores.folder.worker_log("collector", WORKER, 1)
        log.write_text("[2026-01-01 00:00:00][a.py:1][INFO] hello\n")
        stores.close()
        worker.stores.close()
        assert ranch.run.worker_log("collector", WORKER, 1).exists()


def test_a_learner_without_the_folder_is_told_so_as_soon_as_that_is_known(ranch: Ranch, temporary: Path) -> None:
    worker = Worker(ranch, ranch.elsewhere, role="learner")
    with pytest.raises(NoFolderError, match="a learner must see the runs folder"):
        worker.stores.registered(worker.news)
    worker.stores.registered(replace(worker.news, token_there=False))
    with pytest.raises(NoFolderError):
        worker.stores.begin(worker.assign())
    worker.stores.close()


def test_what_a_killed_worker_left_is_removed_by_its_next_incarnation(ranch: Ranch, temporary: Path) -> None:
    left = temporary / f"remuda-worker-{WORKER}" / "something"
    left.mkdir(parents=True)
    of_another = temporary / "remuda-worker-of-another"
    of_another.mkdir()
    worker = Worker(ranch, ranch.elsewhere)
    worker.stores.registered(worker.news)
    worker.stores.begin(worker.assign())
    assert not left.exists()
    assert of_another.exists(), "it is young: its worker may live"
    old_s = time.time() - 3_600.0
    os.utime(of_another, (old_s, old_s))
    second = Worker(ranch, ranch.elsewhere)
    second.stores.registered(second.news)
    second.stores.begin(replace(second.assign(), grant=ranch.grant(worker=WORKER.replace("a", "d"))))
    assert not of_another.exists()
    assert (temporary / f"remuda-worker-{WORKER}").exists(), "its worker lives"
    worker.stores.close()
    second.stores.close()
