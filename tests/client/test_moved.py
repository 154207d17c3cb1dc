"""A client whose coordinator was killed asks the one that was started after it, wherever that listens."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.client import Client
from remuda.tests.worker.fake_coordinator import UUID, FakeCoordinator
from remuda.wire import connection_file
from remuda.wire.conversation import UnreachableError
from remuda.wire.messages import Done, StopExperiment

OTHER = UUID.replace("0", "1")


def test_a_stale_connection_file_that_is_rewritten_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "connection.json"
    with FakeCoordinator() as dead:
        connection_file.write(path, dead.connection)
    with FakeCoordinator() as coordinator, Client(path) as client:
        coordinator.answer = lambda message: Done()
        connection_file.write(path, replace(coordinator.connection, coordinator=OTHER))
        client.stop("x")
        client.stop("y")
        assert coordinator.heard == [StopExperiment("x"), StopExperiment("y")]


@pytest.mark.parametrize("file", ["the same", "none", "half a word"])
def test_without_another_it_is_unreachable_at_the_deadline(tmp_path: Path, file: str) -> None:
    path = tmp_path / "connection.json"
    with FakeCoordinator() as dead:
        connection_file.write(path, dead.connection)
    with Client(path, answer_deadline_s=1.5) as client:
        if file == "none":
            path.unlink()
        if file == "half a word":
            path.write_text('{"coord')
        with pytest.raises(UnreachableError, match=r"did not answer within 1\.\d+ s"):
            client.stop("x")
