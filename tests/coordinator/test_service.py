"""A coordinator as a process: it answers, refuses, survives garbage, and ends in order."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import zmq

from remuda.client.client import Client
from remuda.tests.keys import raw_dealer
from remuda.tests.patience import HANG_S, until
from remuda.tests.warm.popen import Popen
from remuda.tests.worker.leases import small_config
from remuda.tests.worker.recording_link import WORKER
from remuda.wire import connection_file
from remuda.wire.channel import Channel
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.conversation import RefusedError
from remuda.wire.keys.own import caller_keys
from remuda.wire.messages import PROTOCOL_VERSION, Register, StatusRequest
from remuda.wire.sockets import DealerSocket, Malformed, client_identity, worker_identity
from remuda.worker.link import Link

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("a coordinator by itself")]


class Running:
    """A coordinator of its own for each test; its messages go to a file."""

    def __init__(self, folder: Path, *, lifeline: int | None = None) -> None:
        self.runs_dir = folder / "runs"
        self.file = folder / "connection.json"
        self.log = folder / "coordinator.txt"
        arguments = ["--runs-dir", str(self.runs_dir), "--connection-file", str(self.file)]
        more = [] if lifeline is None else ["--lifeline", str(lifeline)]
        with self.log.open("wb") as output:
            self.process = Popen(
                [sys.executable, "-P", "-m", "remuda.coordinator", *arguments, *more],
                stdout=output,
                stderr=output,
                pass_fds=() if lifeline is None else (lifeline,),
            )
        until(self.file.exists, "the connection file")

    @property
    def connection(self) -> ConnectionFile:
        return connection_file.read(self.file)

    def answers(self) -> bool:
        with Client(self.file) as client:
            return client.status().coordinator.pid == self.process.pid

    def register(self, *, protocol: int = PROTOCOL_VERSION) -> Link:
        return Link(self.connection, Register(WORKER, 1, "collector", "here", os.getpid(), protocol, "0"))


@contextmanager
def running(folder: Path, *, lifeline: int | None = None) -> Generator[Running, None, None]:
    opened = Running(folder, lifeline=lifeline)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait()


@pytest.fixture
def coordinator(tmp_path: Path) -> Generator[Running, None, None]:
    with running(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running, None, None]:
    """One for all tests after which it is as before."""
    with running(tmp_path_factory.mktemp("shared")) as opened:
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_ends_in_order(coordinator: Running, number: signal.Signals) -> None:
    coordinator.process.send_signal(number)
    assert coordinator.process.wait(HANG_S) == 0
    assert not coordinator.file.exists()
    log = coordinator.log.read_text()
    assert f"shutting down: asked to by {number.name}" in log
    assert "Traceback" not in log


def test_it_ends_with_its_lifeline(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        with running(tmp_path, lifeline=reading) as coordinator:
            assert coordinator.answers()
            os.close(writing)
            assert coordinator.process.wait(HANG_S) == 0
            assert not coordinator.file.exists()
    finally:
        os.close(reading)


@pytest.mark.parametrize("protocol", [PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1])
def test_a_worker_of_another_protocol_is_refused_with_both_numbers(shared: Running, protocol: int) -> None:
    link = shared.register(protocol=protocol)
    with pytest.raises(RefusedError, match=rf"protocol {PROTOCOL_VERSION}.*speaks {protocol}") as caught:
        link.start(HANG_S)
    assert caught.value.code == "protocol"
    link.close("refused", 0.0)
    assert shared.answers()


def test_frames_of_another_protocol_are_refused_in_that_protocol(shared: Running) -> None:
    theirs = PROTOCOL_VERSION + 1
    connection = shared.connection
    peer = DealerSocket(connection.address, client_identity(), caller_keys(connection, "operator"))
    try:
        peer.send(Channel().post(StatusRequest(), 0.0), protocol=theirs)
        answers: list[object] = []

        def answered() -> bool:
            peer.wait(0.05)
            answers.append(peer.receive())
            return answers[-1] is not None

        until(answered, "a refusal")
        assert isinstance(answers[-1], Malformed)  # to us; a peer of that protocol can read it
        assert f"protocol {theirs}" in str(answers[-1].error)
    finally:
        peer.close()
    assert shared.answers()


def raw_tcp(address: str, data: bytes) -> None:
    url = urlsplit(address)
    assert url.port is not None
    with socket.create_connection(("127.0.0.1", url.port), timeout=HANG_S) as connection:
        connection.sendall(data)


def test_it_survives_what_is_no_zeromq_at_all(shared: Running) -> None:
    rng = np.random.default_rng(0)
    address = shared.connection.address
    raw_tcp(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    raw_tcp(address, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # how TLS begins
    for _ in range(50):
        raw_tcp(address, rng.bytes(int(rng.integers(0, 300))))
    assert shared.answers()


def test_it_survives_random_frames_without_filling_its_log(coordinator: Running) -> None:
    rng = np.random.default_rng(1)
    context = zmq.Context()
    peer = raw_dealer(context, coordinator.connection, worker_identity(WORKER, 1, "test", 0))
    peer.linger = 2_000
    for _ in range(3_000):
        peer.send_multipart([rng.bytes(int(rng.integers(0, 60))) for _ in range(int(rng.integers(1, 6)))])
    peer.close()
    context.term()
    assert coordinator.answers()
    until(lambda: "malformed message" in coordinator.log.read_text(), "a word about it")
    assert coordinator.log.read_text().count("malformed message") <= 5
    assert coordinator.process.poll() is None


def test_the_client_is_told_what_is_wrong(coordinator: Running) -> None:
    with Client(coordinator.file) as client:
        with pytest.raises(RefusedError, match="no experiment is called 'nobody'") as caught:
            client.experiment("nobody")
        assert caught.value.code == "unknown"
        with pytest.raises(RefusedError, match="no experiment is called 'nobody'"):
            client.stop("nobody")
        coordinator.runs_dir.joinpath("small").mkdir(parents=True)
        coordinator.runs_dir.joinpath("small", "notes.txt").touch()
        with pytest.raises(RefusedError) as taken:
            client.submit(small_config())
        assert taken.value.code == "exists"
        assert client.status().experiments == []


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
