"""A coordinator that is served: other programs see how it is, also while its own process stands still."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import msgspec
import psutil
import pytest
from msgspec.structs import replace

from remuda.client.client import Client
from remuda.coordinator.monitoring.address import listen
from remuda.coordinator.monitoring.process import LENGTH_BYTES, SnapshotPipe
from remuda.coordinator.monitoring.snapshot import Snapshot
from remuda.tests.coordinator.monitoring.exposition_reader import read
from remuda.tests.coordinator.monitoring.snapshots import RUN, SNAPSHOT
from remuda.tests.patience import HANG_S, until, until_gone
from remuda.tests.warm.popen import Popen

pytestmark = pytest.mark.processes


class Served:
    """A `remuda coordinator --http 0`."""

    def __init__(self, folder: Path) -> None:
        self.log, self.file = folder / "coordinator.txt", folder / "runs" / "connection.json"
        with self.log.open("wb") as output:
            self.process = Popen(command(folder, "0"), stdout=output, stderr=output)
        until(lambda: "/metrics\n" in self.log.read_text(), "a line with the address")
        (port,) = re.findall(r"health and metrics: http://127\.0\.0\.1:(\d+)/health", self.log.read_text())
        self.port = int(port)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def is_(self, status: str, code: int) -> bool:
        found, body = self.get("/health")
        return (found, json.loads(body)["status"]) == (code, status)


def command(folder: Path, http: str) -> list[str]:
    runs = ["--runs-dir", str(folder / "runs")]
    return [sys.executable, "-P", "-m", "remuda.cli", "coordinator", *runs, "--http", http]


@contextmanager
def served(folder: Path) -> Generator[Served]:
    opened = Served(folder)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait()


def test_a_coordinator_that_is_stopped_is_seen_to_be_stopped(tmp_path: Path) -> None:
    with served(tmp_path) as coordinator:
        until(lambda: coordinator.is_("ok", 200), "a loop that turns")
        status, text = coordinator.get("/metrics")
        found = read(text)
        assert status == 200
        assert found["remuda_up"].value() == 1
        assert found["remuda_workers"].value(role="collector", state="idle") == 0
        assert str(tmp_path) not in text
        coordinator.process.send_signal(signal.SIGSTOP)
        until(lambda: coordinator.is_("stalled", 503), "a health that says so")
        coordinator.process.send_signal(signal.SIGCONT)
        until(lambda: coordinator.is_("ok", 200), "a loop that turns again")


def test_it_ends_with_its_coordinator_however_that_ends(tmp_path: Path) -> None:
    with served(tmp_path) as coordinator:
        until(lambda: coordinator.is_("ok", 200), "a loop that turns")
        (server,) = psutil.Process(coordinator.process.pid).children()
        coordinator.process.kill()
        coordinator.process.wait()
        until_gone([server])
    with served(tmp_path) as again:
        until(lambda: again.is_("ok", 200), "a loop that turns")
        (server,) = psutil.Process(again.process.pid).children()
        again.process.terminate()
        assert again.process.wait(HANG_S) == 0
        until_gone([server])
        assert "Traceback" not in again.log.read_text()


def test_a_server_that_dies_takes_nobody_along(tmp_path: Path) -> None:
    with served(tmp_path) as coordinator:
        until(lambda: coordinator.is_("ok", 200), "a loop that turns")
        (server,) = psutil.Process(coordinator.process.pid).children()
        server.kill()
        with Client(coordinator.file) as client:
            assert client.status().coordinator.pid == coordinator.process.pid
        until(lambda: "it is started again" in coordinator.log.read_text(), "a line in the log")
        until(lambda: coordinator.is_("ok", 200), "another server, at the same port")


def test_a_port_in_use_ends_the_start_with_a_sentence_and_nothing_is_written(tmp_path: Path) -> None:
    with listen("0") as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(command(tmp_path, str(port)), capture_output=True, text=True, timeout=HANG_S)
    assert ended.returncode == 2
    assert ended.stderr.strip().endswith(
        f"--http {port}: Address already in use; choose an address of this machine and a free port"
    )
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "runs").exists()


def received(end: socket.socket) -> Snapshot:
    with end.makefile("rb") as stream:
        return msgspec.json.decode(stream.read(int.from_bytes(stream.read(LENGTH_BYTES))), type=Snapshot)


def test_a_number_that_json_does_not_know_is_not_known() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        SnapshotPipe(ours).put(replace(SNAPSHOT, runs=[replace(RUN, best_return=float("nan"))]))
        assert received(theirs).runs[0].best_return is None


def test_a_reader_that_stands_still_costs_one_snapshot_and_no_time() -> None:
    ours, theirs = socket.socketpair()
    large = replace(SNAPSHOT, runs=10_000 * [RUN])
    with ours, theirs:
        pipe = SnapshotPipe(ours)
        assert pipe.put(large)  # more than the pipe takes
        for _ in range(5):
            assert pipe.put(replace(SNAPSHOT, turns=1))  # none of them is kept
        theirs.settimeout(10.0)
        length = int.from_bytes(theirs.recv(LENGTH_BYTES, socket.MSG_WAITALL))
        body = bytearray()
        while len(body) < length:
            body += theirs.recv(length - len(body))
            if len(body) < length:
                pipe.put(SNAPSHOT)  # sends what is left of the first, before any other
        assert msgspec.json.decode(body, type=Snapshot) == large
