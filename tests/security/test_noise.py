"""32. Strangers at all four ports: silent, half open and slow connections, HTTP, TLS and other garbage, too large
messages."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from random import Random
from urllib.parse import urlsplit
from uuid import uuid4

import psutil
import pytest
import zmq

from remuda.tests.faults.herd import Herd
from remuda.tests.faults.test_registration import link, register
from remuda.tests.keys import raw_dealer
from remuda.tests.patience import HANG_S, until
from remuda.tests.ports import free_ports
from remuda.tests.security.sizes import STRANGERS, within
from remuda.tests.worker.stores.served import WORKER
from remuda.wire.codec import OF_STRANGERS
from remuda.wire.connection_file import read
from remuda.wire.keys.folder import caller_keys
from remuda.wire.messages import Grant
from remuda.wire.sockets import worker_identity
from remuda.wire.streams import Get, Refused, StreamDealer
from remuda.worker.process import raise_open_files_limit

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("strangers at four ports")]

HTTP = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
ZMTP = b"\xff" + bytes(8) + b"\x7f\x03\x00"
RANDOM = Random(32)
GARBAGE = (
    HTTP,
    b"POST /api/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n" + bytes(1_000),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # TLS
    ZMTP + b"NULL".ljust(20, b"\0") + bytes(32),
    ZMTP + b"CURVE".ljust(20, b"\0") + bytes(32) + RANDOM.randbytes(300),
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\r\n" * 2_000,
    bytes(64),
    b"\xff" * 5_000,
    b"A" * 100_000,
    RANDOM.randbytes(10_000),
)
PORTS = ("page", "monitoring", "coordinator", "streams")


class Ranch:
    """A coordinator with all its ports, and somebody who may speak at each."""

    def __init__(self, herd: Herd, streams: int) -> None:
        """`streams` is the number of its port for files."""
        self.herd = herd
        self.pid = herd.coordinator().pid
        told = re.compile(r"^(health and metrics|page): (\S+)", re.MULTILINE)
        until(lambda: len(told.findall(herd.said())) == 2, "it says where page and monitoring are")
        said = told.findall(herd.said())
        self._links: dict[str, str] = {"page" if name == "page" else "monitoring": link for name, link in said}
        links = {**self._links, "coordinator": read(herd.connection_file).address}
        self._numbers = {"streams": streams, **{name: urlsplit(link).port or 0 for name, link in links.items()}}

    def connect(self, name: str, first: bytes) -> socket.socket:
        """A stranger's connection."""
        made = socket.create_connection(("127.0.0.1", self._numbers[name]), timeout=HANG_S)
        say(made, first)
        return made

    def process(self, name: str) -> psutil.Process:
        """Whoever serves this port."""
        own = psutil.Process(self.pid)
        module = {"page": "remuda.page", "monitoring": "remuda.coordinator.monitoring"}.get(
            name, "remuda.worker.stores.server.service"
        )
        return own if name == "coordinator" else next(each for each in own.children() if module in each.cmdline())

    def ask(self, name: str) -> None:
        """Be served, as somebody with a key or token is."""
        asks: dict[str, Callable[[], None]] = {
            "page": lambda: self._get("page", "/api/session"),
            "monitoring": lambda: self._get("monitoring", "/health"),
            "coordinator": self._register,
            "streams": self._stream,
        }
        asks[name]()

    def _get(self, name: str, path: str) -> None:
        with closing(HTTPConnection("127.0.0.1", self._numbers[name], timeout=HANG_S)) as connection:
            token = urlsplit(self._links[name]).fragment.removeprefix("token=")
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            assert answer.status == 200
            json.loads(answer.read())

    def _register(self) -> None:
        with link(self.herd, register(str(uuid4()))) as honest:
            honest.start(HANG_S)

    def _stream(self) -> None:
        """Ask for a file without a grant; the answer says that there is none."""
        grant = Grant(str(self.herd.runs / "x"), "collector", WORKER, 1, "policy_x_000001", "0" * 64)
        keys = caller_keys(read(self.herd.connection_file), "worker")
        with closing(StreamDealer(f"tcp://127.0.0.1:{self._numbers['streams']}", keys)) as worker:
            assert worker.say(Get(1, grant, "checkpoint", "iteration_0.pth.tar"))

            def is_answered() -> bool:
                worker.wait(0.1)
                answer = worker.take()
                return answer is not None and isinstance(answer[0], Refused)

            until(is_answered, "an answer by the stream server")


@pytest.fixture(scope="module")
def ranch(tmp_path_factory: pytest.TempPathFactory) -> Generator[Ranch]:
    pytest.importorskip("uvicorn")
    raise_open_files_limit()
    [streams] = free_ports(1)
    options = ("--page", "--http", "0", "--stream-port", str(streams))
    herd = Herd(tmp_path_factory.mktemp("strangers"), options=options)
    try:
        yield Ranch(herd, streams)
        herd.shut_down()
    finally:
        herd.end()


def say(stranger: socket.socket, something: bytes) -> None:
    """Send it, if the connection is still there."""
    with suppress(OSError):
        stranger.sendall(something)


@pytest.mark.parametrize("port", PORTS)
def test_strangers_keep_nobody_out_of_a_port(ranch: Ranch, port: str) -> None:
    """Afterwards the same process serves it, with as few descriptors as before."""
    ranch.ask(port)
    process = ranch.process(port)
    before, refused = process.num_fds(), ranch.herd.status().coordinator.refusals.no_key
    begun = HTTP[:-4] if port in ("page", "monitoring") else ZMTP
    with ExitStack() as strangers:
        for first in (b"", begun):
            connected = [strangers.enter_context(ranch.connect(port, first)) for _ in range(STRANGERS)]
        for number in range(STRANGERS):
            strangers.enter_context(ranch.connect(port, GARBAGE[number % len(GARBAGE)]))
        for _ in range(3):
            begin_s = time.monotonic()
            ranch.ask(port)
            took_s = time.monotonic() - begin_s
            print(f"32: served at the port of {port} in {took_s:.3f} s beside {3 * STRANGERS} strangers")
            assert within(took_s, 2.0)
            for slow in connected:
                say(slow, b"\0")
    until(lambda: process.num_fds() <= before, "all strangers are forgotten")
    if port in ("coordinator", "streams"):
        until(lambda: ranch.herd.status().coordinator.refusals.no_key > refused, "where keys count they are counted")
    assert ranch.process(port) == process
    ranch.ask(port)


def test_a_message_above_the_limit_changes_nothing(ranch: Ranch) -> None:
    with zmq.Context() as context:
        connection = read(ranch.herd.connection_file)
        with raw_dealer(context, connection, worker_identity(str(uuid4()), 1, "a" * 8, 0)) as large:
            large.linger = 0
            large.send_multipart([b"R\6", bytes(OF_STRANGERS.header_bytes + 1)])
            ranch.ask("coordinator")
            assert read(ranch.herd.connection_file).pid == ranch.pid
