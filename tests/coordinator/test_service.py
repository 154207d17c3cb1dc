"""A coordinator as a process: it answers, says why a run waits, and ends in order."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remuda.client.client import Client
from remuda.tests.patience import HANG_S, until
from remuda.tests.warm.popen import Popen
from remuda.tests.worker.leases import small_config
from remuda.wire import connection_file
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.messages import PROTOCOL_VERSION

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("a coordinator by itself")]


class Running:
    """A coordinator of its own for each test; its messages go to a file."""

    def __init__(self, folder: Path) -> None:
        self.runs_dir = folder / "runs"
        self.file = folder / "connection.json"
        self.log = folder / "coordinator.txt"
        arguments = ["--runs-dir", str(self.runs_dir), "--connection-file", str(self.file)]
        with self.log.open("wb") as output:
            self.process = Popen(
                [sys.executable, "-P", "-m", "remuda.coordinator", *arguments],
                stdout=output,
                stderr=output,
            )
        until(self.file.exists, "the connection file")

    @property
    def connection(self) -> ConnectionFile:
        return connection_file.read(self.file)

    def answers(self) -> bool:
        with Client(self.file) as client:
            return client.status().coordinator.pid == self.process.pid


@contextmanager
def running(folder: Path) -> Generator[Running, None, None]:
    opened = Running(folder)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait()


@pytest.fixture
def coordinator(tmp_path: Path) -> Generator[Running, None, None]:
    with running(tmp_path) as opened:
        yield opened


def test_it_says_where_it_is_and_answers_there(coordinator: Running) -> None:
    connection = coordinator.connection
    assert connection.pid == coordinator.process.pid
    assert coordinator.file.stat().st_mode & 0o777 == 0o600
    with Client(coordinator.file) as client:
        status = client.status()
    assert status.coordinator.id == connection.coordinator
    assert status.coordinator.address == connection.address
    assert status.coordinator.protocol == PROTOCOL_VERSION
    assert (status.workers, status.experiments) == ([], [])
    assert not coordinator.runs_dir.exists()  # nothing is written before there is a run


def test_told_to_end_it_ends_in_order(coordinator: Running) -> None:
    coordinator.process.terminate()
    assert coordinator.process.wait(HANG_S) == 0
    assert not coordinator.file.exists()
    log = coordinator.log.read_text()
    assert "shutting down: asked to by SIGTERM" in log
    assert "Traceback" not in log


def test_without_workers_an_experiment_waits_says_why_and_can_be_stopped(coordinator: Running) -> None:
    with Client(coordinator.file) as client:
        submitted = client.submit(small_config())
        assert submitted.run_dir == str(coordinator.runs_dir / "small")
        waiting = client.experiment(submitted.experiment[:8])
        assert waiting.state == "queued"
        until(lambda: client.experiment("small").waiting_for is not None, "why it waits")
        seen: list[str] = []
        client.stop("small")
        last = client.follow(submitted.experiment, lambda status: seen.append(status.state))
    assert last.state == "stopped"
    assert seen == ["stopped"]
    assert coordinator.answers()
