"""What a client shows of a log: everything, once, in order, until the experiment is over, over a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.client import Client
from remuda.client import client as client_module
from remuda.tests.patience import HANG_S
from remuda.tests.worker.fake_coordinator import FakeCoordinator
from remuda.wire import connection_file
from remuda.wire.conversation import UnreachableError
from remuda.wire.messages import AnyMessage, LogPiece, LogPosition, LogRequest, LogText

FILE = "commander/commander_logger.txt"


class Log:
    """A coordinator's answers about a log that grows by a line with every question."""

    def __init__(self, lines: int) -> None:
        self.lines = [f"line {number}\n" for number in range(lines)]
        self.asked: list[LogRequest] = []

    def answer(self, message: AnyMessage) -> AnyMessage | None:
        assert isinstance(message, LogRequest)
        self.asked.append(message)
        offset = message.positions[0].offset if message.positions else 0
        end = min(len(self.asked), len(self.lines))
        text = "".join(self.lines[offset:end])
        piece = LogPiece(LogPosition(FILE, 7, end), "commander", text)
        return LogText([piece], over=offset == len(self.lines))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "POLL_S", 0.001)


def connected(
    coordinator: FakeCoordinator,
    folder: Path,
    answer: Callable[[AnyMessage], AnyMessage | None],
    answer_s: float = HANG_S,
) -> Client:
    """`answer_s`: after which a coordinator that is gone is looked for again."""
    coordinator.answer = answer
    connection_file.write(folder / "connection.json", coordinator.connection)
    return Client(folder / "connection.json", answer_deadline_s=answer_s)


@pytest.mark.usefixtures("quick")
def test_followed_to_the_end_every_line_comes_once(tmp_path: Path) -> None:
    log = Log(5)
    with FakeCoordinator() as coordinator, connected(coordinator, tmp_path, log.answer) as client:
        text = "".join(piece.text for piece in client.logs("x", last_lines=3, follow=True))
    assert text == "".join(log.lines)
    assert log.asked[0] == LogRequest("x", "commander", 3, [])
    assert all(request.last_lines is None for request in log.asked[1:]), "logs that come later are shown whole"


@pytest.mark.usefixtures("quick")
def test_a_coordinator_that_moved_is_asked_for_the_rest(tmp_path: Path) -> None:
    log = Log(4)
    with FakeCoordinator() as first:
        client = connected(first, tmp_path, log.answer, 1.0)
        pieces = client.logs("x", follow=True)
        text = next(pieces).text
    with FakeCoordinator() as second:
        second.answer = log.answer
        connection_file.write(tmp_path / "connection.json", second.connection)
        text += "".join(piece.text for piece in pieces)
        client.close()
    assert text == "".join(log.lines)


@pytest.mark.usefixtures("quick")
def test_one_that_never_comes_back_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "RETURN_DEADLINE_S", 0.1)
    with FakeCoordinator() as coordinator:
        client = connected(coordinator, tmp_path, Log(1).answer, 1.0)
    with pytest.raises(UnreachableError):
        list(client.logs("x", follow=True))
    client.close()
