"""Another user of the machine: sees that there is a coordinator, and gets nothing from it. Only as root, who may become
another user."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import zmq

from remuda.tests.cli.terminal import Terminal
from remuda.tests.faults.conftest import Herds
from remuda.tests.faults.herd import Herd
from remuda.tests.patience import until
from remuda.wire.codec import encode
from remuda.wire.connection_file import read
from remuda.wire.envelope import Envelope
from remuda.wire.keys.own import CallerKeys
from remuda.wire.keys.pair import new_pair
from remuda.wire.messages import StatusRequest
from remuda.wire.sockets import show_keys

SILENCE_MS = 1_000
"""How long an answer would have to come. An honest client gets one within milliseconds."""
NOBODY = 65_534

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user"),
]


def as_nobody(act: Callable[[], object]) -> str:
    """What this returns in a process of another user. The process is forked: that user may not be able to start this
    Python, which may lie in somebody's home."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, str(act()).encode())
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as told:
        said = told.read().decode()
    os.waitpid(child, 0)
    return said


def looks_at(place: Path) -> str:
    """Whether another user can read a file, or list a folder."""

    def look() -> str:
        try:
            return f"read {os.listdir(place) if place.is_dir() else place.read_bytes()!r}"
        except PermissionError:
            return "refused"

    return as_nobody(look)


@pytest.fixture
def herd(herds: Herds) -> Generator[Herd]:
    """A coordinator in a folder whose parents everybody may enter, as /tmp and /home are."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        made = herds(root=Path(folder))
        os.chmod(made.root, 0o755)
        made.coordinator()
        yield made
        made.shut_down()


def test_it_reads_no_key_and_no_connection_file(herd: Herd) -> None:
    keys = herd.runs / ".keys"
    secrets = [keys / name for name in ("coordinator", "operator", "worker", "authorized")]
    places = [herd.connection_file, keys, *secrets]
    assert all(place.exists() for place in places)
    assert looks_at(herd.root).startswith("read "), "up to here everybody may look"
    assert {looks_at(place) for place in (herd.runs, *places)} == {"refused"}
    herd.runs.chmod(0o755)  # somebody wants to show the runs
    assert looks_at(herd.runs).startswith("read ")
    assert {looks_at(place) for place in places} == {"refused"}


@pytest.mark.parametrize("kind", ["no key", "a key of its own"])
def test_it_cannot_speak_to_the_coordinator(herd: Herd, kind: str) -> None:
    """Even if it has found out the address and the public key, which are no secrets."""
    connection = read(herd.connection_file)
    question = [bytes(frame) for frame in encode(Envelope(1, 0, 1, StatusRequest()))]

    def speak() -> str:
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        if kind == "a key of its own":
            show_keys(socket, CallerKeys(connection.server_key, new_pair("stranger")))
        socket.connect(connection.address)
        for _ in range(20):
            socket.send_multipart(question)
        answered = socket.poll(SILENCE_MS)
        socket.close(linger=0)
        context.term()
        return "answered" if answered else "silence"

    assert as_nobody(speak) == "silence"
    counter = "no_key" if kind == "no key" else "unknown_key"

    def counted() -> bool:
        return bool(getattr(herd.status().coordinator.refusals, counter))

    until(counted, "it is counted")
    assert herd.members() == []


def test_it_cannot_give_its_own_connection_file_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "connection.json"
    path.write_text("{}")
    path.chmod(0o600)
    os.chown(path, NOBODY, NOBODY)
    ended = Terminal(monkeypatch, capsys).remuda("status", "--connection-file", path)
    assert ended.code
    assert f"belongs to another user (user id {NOBODY}" in ended.err.replace("\n", " ")
