"""`remuda coordinator` refuses what it cannot work with, in a sentence; verbs wait for one that is being started."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.cli import connecting
from remuda.coordinator.service import Service
from remuda.coordinator.settings import Settings
from remuda.storage.folder_token import FolderToken
from remuda.tests.cli.terminal import Terminal
from remuda.tests.keys import connection_to
from remuda.tests.patience import HANG_S
from remuda.tests.worker.fake_coordinator import UUID, FakeCoordinator
from remuda.wire import connection_file
from remuda.wire.messages import PROTOCOL_VERSION, CoordinatorStatus, Status
from remuda.worker.shutdown_guard import ShutdownGuard


def test_a_runs_folder_that_cannot_be_written_is_wrong_input(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    ended = terminal.remuda("coordinator", "--runs-dir", tmp_path / "file" / "runs")
    assert ended.code == 2
    assert f"{tmp_path / 'file' / 'runs'} cannot be written: Not a directory; choose another --runs-dir" in ended.err
    assert (tmp_path / "file").read_text() == "no folder"


@pytest.mark.parametrize("bind", ["2001:db8::7:5555", "[::1:5555"])
def test_an_address_of_ipv6_needs_brackets(terminal: Terminal, tmp_path: Path, bind: str) -> None:
    """Without them nobody knows where the host ends."""
    ended = terminal.remuda("coordinator", "--runs-dir", tmp_path / "runs", "--bind", bind)
    assert ended.code == 2
    assert ended.err == f"--bind {bind!r}: an address of IPv6 is written in brackets, as in [2001:db8::7]:5555\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("collector",), ("learner", "--count", "2")])
def test_torchrun_starts_one_learner_and_no_other_worker(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "one", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    ended = terminal.remuda("worker", *command, "--runs-dir", tmp_path)
    assert ended.code == 2
    assert ended.err.startswith("torchrun starts the ranks of one learner: start other workers without it")


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Path]:
    """A runs folder whose coordinator is being started: its connection file comes after a moment."""
    runs = tmp_path / "runs"
    runs.mkdir()
    with FakeCoordinator() as coordinator:
        coordinator.answer = lambda message: Status(
            CoordinatorStatus(UUID, coordinator.connection.address, 1, 0.0, PROTOCOL_VERSION), [], []
        )
        timer = threading.Timer(0.3, lambda: connection_file.write(runs / "connection.json", coordinator.connection))
        timer.start()
        yield runs
        timer.join()


def test_a_starting_coordinator_is_awaited(terminal: Terminal, starting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_S", "SAID_AFTER_S"):
        monkeypatch.setattr(connecting, name, HANG_S)
    ended = terminal.remuda("status", "--runs-dir", starting)
    assert ended.code == 0
    assert "no experiment" in ended.out
    assert ended.err == "", "so short a wait is not worth a word"


def test_who_waits_longer_says_so(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "LOOK_S", 1.0)
    monkeypatch.setattr(connecting, "SAID_AFTER_S", 0.02)
    (tmp_path / "runs").mkdir()
    ended = terminal.remuda("status", "--runs-dir", tmp_path / "runs")
    assert ended.code == 2
    first, second = ended.err.splitlines()
    assert first.startswith("waiting for a coordinator, at most ")
    assert first.endswith("/runs/connection.json does not exist yet")
    assert "connection.json does not exist: no coordinator runs there" in second


def test_what_tells_workers_of_a_killed_coordinators_folder_goes_with_the_next_one(tmp_path: Path) -> None:
    """Its token is in the runs folder, and its connection file says whose it is."""
    former, other = "01234567-89ab-cdef-0123-456789abcdef", "11234567-89ab-cdef-0123-456789abcdef"
    for id in (former, other):
        FolderToken(tmp_path, id).write()
    connection_file.write(tmp_path / "connection.json", connection_to("tcp://127.0.0.1:9", coordinator=former))
    with ShutdownGuard() as guard:
        guard.end("at once")
        service = Service(Settings(tmp_path, tmp_path / "connection.json", persistent=True), guard)
        assert len(list(tmp_path.glob(".seen_*"))) == 2, "its own, and that of another one"
        service.run()
    assert [path.name for path in tmp_path.glob(".seen_*")] == [f".seen_{other}"]


@pytest.mark.parametrize("bind", ["192.0.2.77:0", "nohost.invalid:5555", "taken"])
def test_an_address_that_cannot_be_listened_on_is_wrong_input(terminal: Terminal, tmp_path: Path, bind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}" if bind == "taken" else bind
        ended = terminal.remuda("coordinator", "--runs-dir", tmp_path / "runs", "--bind", bind)
    assert ended.code == 2
    assert ended.err.startswith(f"--bind tcp://{bind}: ")
    assert ended.err.endswith("choose an address of this machine and a free port\n")
    assert list(tmp_path.iterdir()) == []
