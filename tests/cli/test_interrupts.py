"""Ctrl-C at any moment of a verb: no traceback, and an exit code that says whether anything was left undone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from remuda.tests.patience import HANG_S, until
from remuda.tests.worker.fake_coordinator import UUID, FakeCoordinator
from remuda.wire import connection_file
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    AnyMessage,
    CoordinatorStatus,
    ExperimentStatus,
    Status,
    StatusRequest,
    StopExperiment,
    Submit,
    Submitted,
)

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


class Verb:
    """`remuda …` as a process; its outputs go to files."""

    def __init__(self, folder: Path, *arguments: str, modules: Path | None = None) -> None:
        self.out, self.err = folder / "out.txt", folder / "err.txt"
        path = [*([] if modules is None else [str(modules)]), str(ROOT / ".typing")]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "remuda.cli", *arguments],
                stdout=out,
                stderr=err,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        until(lambda: condition() or self.process.poll() is not None, what)
        assert self.process.poll() is None, self.err.read_text()

    def said(self) -> str:
        """What it has printed on standard error, but that it waits still, as it says after 15 s on a busy machine."""
        lines = self.err.read_text().splitlines(keepends=True)
        return "".join(line for line in lines if "the coordinator has been silent for" not in line)

    def interrupted(self) -> int:
        """Its exit code after a Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(HANG_S)
        assert "Traceback" not in self.err.read_text()
        assert "did not end" not in self.err.read_text()
        return code


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Verb]]:
    verbs: list[Verb] = []
    yield verbs
    for verb in verbs:
        for child in psutil.Process(verb.process.pid).children() if verb.process.poll() is None else ():
            child.kill()
        verb.process.kill()
        verb.process.wait()


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[FakeCoordinator]:
    with FakeCoordinator() as opened:
        connection_file.write(tmp_path / "connection.json", opened.connection)
        yield opened


def asked(coordinator: FakeCoordinator, kind: type[AnyMessage], times: int = 1) -> Callable[[], bool]:
    return lambda: len(coordinator.heard_of(kind)) >= times


def test_a_question_that_is_not_answered(tmp_path: Path, coordinator: FakeCoordinator, started: list[Verb]) -> None:
    coordinator.answer = lambda message: None
    verb = Verb(tmp_path, "stop", "x", "--connection-file", "connection.json")
    started.append(verb)
    verb.until(asked(coordinator, StopExperiment), "it asks")
    assert verb.interrupted() == 130
    assert verb.err.read_text() == ""


def status_of(experiment: str) -> Status:
    running = ExperimentStatus(
        experiment, "x", "running", None, "/runs/x", 5, 1, 0, 0, 1.0, None, None, 0.0, 0.0, 0, None, None
    )
    return Status(CoordinatorStatus(UUID, "tcp://127.0.0.1:1", 1, 0.0, PROTOCOL_VERSION), [], [running])


def test_a_run_that_is_followed_goes_on(tmp_path: Path, coordinator: FakeCoordinator, started: list[Verb]) -> None:
    def answer(message: AnyMessage) -> AnyMessage | None:
        match message:
            case Submit():
                return Submitted(UUID, "/runs/x")
            case StatusRequest():
                return status_of(UUID)
            case _:
                raise AssertionError(f"the verb said {message}")

    coordinator.answer = answer
    config = str(ROOT / "examples" / "cartpole_dqn.yaml")
    verb = Verb(tmp_path, "submit", config, "--follow", "--connection-file", "connection.json")
    started.append(verb)
    verb.until(asked(coordinator, StatusRequest, times=2), "it follows")
    assert verb.interrupted() == 0
    assert verb.out.read_text() == f"{UUID}\n"
    assert f"type: remuda stop {UUID[:8]} --connection-file connection.json\n" in verb.err.read_text()
    assert coordinator.heard_of(StopExperiment) == []
