"""The stream server's process: started when somebody knocks, started again when it dies, gone with its coordinator."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from remuda.buffer.chunk import encode_chunk
from remuda.coordinator.stream_server import FIRST_PAUSE_S, StreamServerProcess, listen
from remuda.tests.ipv6 import needs_ipv6
from remuda.tests.keys import caller, keys_folder
from remuda.tests.patience import HANG_S, until
from remuda.tests.worker.stores.served import Ranch, chunk
from remuda.wire.messages import RefusalCounts
from remuda.wire.streams import Cancel, StreamDealer
from remuda.worker.stores.transfers import Upload

pytestmark = pytest.mark.processes


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def ranch(tmp_path: Path) -> Generator[Ranch]:
    made = Ranch(tmp_path)
    yield made
    made.close()


def test_it_starts_when_somebody_knocks_and_again_after_its_death(ranch: Ranch) -> None:
    said: list[str] = []
    clock = Clock()
    listener = listen("127.0.0.1", 0)
    server = StreamServerProcess(listener, ranch.runs_dir, keys_folder().path, said.append, clock)
    with closing(server):
        assert not ticked(server), "nobody needs it"
        client = ranch.client(server.port)
        first = _upload(ranch, 0)
        client.start(first)
        until(lambda: ticked(server), "it is started")
        until(lambda: first.finished, "it serves")
        former = server.pid
        assert former is not None
        os.kill(former, signal.SIGKILL)
        second = _upload(ranch, 1)
        client.start(second)
        until(lambda: not ticked(server), "its death is noticed")
        assert said == ["the stream server ended with -9; it is started again when a worker asks for it"]
        assert not ticked(server), "not before a pause"
        clock.now_s += 2 * FIRST_PAUSE_S
        until(lambda: ticked(server), "it is started again")
        until(lambda: second.finished, "the same port, and the same worker")
        pid = server.pid
        assert pid not in (None, former)
    assert pid is not None
    assert not psutil.pid_exists(pid)
    assert len(list(ranch.run.data.iterdir())) == 2


def test_a_port_that_is_taken_is_an_error() -> None:
    with listen("127.0.0.1", 0) as first, pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", first.getsockname()[1])


@needs_ipv6
@pytest.mark.parametrize(("host", "reached"), [("[::]", ["127.0.0.1", "::1"]), ("[::1]", ["::1"])])
def test_every_interface_of_ipv6_is_every_interface_of_ipv4(host: str, reached: list[str]) -> None:
    """Workers go to an address of IPv4 where the machine has one."""
    with listen(host, 0) as listener:
        for each in reached:
            with socket.create_connection((each, listener.getsockname()[1]), timeout=HANG_S) as connection:
                assert connection.getpeername()[0] == each


def test_whom_it_refuses_is_counted_over_its_deaths(ranch: Ranch) -> None:
    """The counts of a process that was killed stay, and those of the next are added."""
    clock = Clock()
    with closing(StreamServerProcess(ranch.listener, ranch.runs_dir, keys_folder().path, print, clock)) as server:
        assert server.refusals == RefusalCounts()
        for times in (1, 2):
            with closing(StreamDealer(f"tcp://127.0.0.1:{server.port}", caller("operator"))) as dealer:
                dealer.say(Cancel(1))
                until(lambda: told(server) == times, "it is counted")  # noqa: B023  (called at once)
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            until(lambda: not ticked(server), "its death is noticed")
            clock.now_s += 10 * FIRST_PAUSE_S
        assert server.refusals == RefusalCounts(forbidden=2)


def told(server: StreamServerProcess) -> int:
    server.tick()
    return server.refusals.forbidden


def ticked(server: StreamServerProcess) -> bool:
    """Whether it runs after another tick."""
    server.tick()
    return server.pid is not None


def _upload(ranch: Ranch, sequence: int) -> Upload:
    announced, buffers = encode_chunk(*chunk(sequence))
    return Upload(ranch.grant(), "chunk", announced.file, buffers)
