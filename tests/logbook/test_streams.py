"""Streams: best-effort output never blocks or fails, and printed text is in the log of its run."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from remuda.logbook.role_logbooks import worker_logbook
from remuda.logbook.streams import (
    KEPT_AT_MOST,
    LONGEST,
    WAITING_AT_MOST,
    BestEffortStream,
    ForwardingStream,
    PrintedStream,
    best_effort_stderr,
    end_printed,
    keep_printed,
    log_printed,
    printed,
)
from remuda.storage.existing_folder import prepare
from remuda.storage.run_folder import RunFolder
from remuda.tests.patience import HANG_S

UUID = "6f1c9c3e-0d0a-4c5b-8a39-2f6f6f5c1e77"


def test_it_has_descriptor_terminal_and_encoding_of_the_stream_behind_it() -> None:
    reading, writing = os.openpty()
    with open(writing, "w", encoding="latin-1") as terminal, open(reading, "rb"):
        stream = ForwardingStream(terminal)
        assert (stream.fileno(), stream.isatty(), stream.encoding) == (terminal.fileno(), True, "latin-1")
        assert stream.writable()


def test_what_is_printed_arrives_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    with best_effort_stderr():
        for number in range(100):
            print(number, file=sys.stderr)
    assert capsys.readouterr().err.split() == [str(number) for number in range(100)]


@pytest.mark.parametrize("kind", ["full disk", "reader gone", "closed"])
def test_a_stream_that_cannot_be_written_raises_nothing(kind: str) -> None:
    if kind == "full disk":
        raw = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")
    elif kind == "reader gone":
        reading, writing = os.pipe()
        os.close(reading)
        raw = os.fdopen(writing, "w")
    else:
        raw = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        raw.close()
    stream = BestEffortStream(raw)
    for _ in range(10):
        print("text", file=stream, flush=True)
    stream.finish()
    with contextlib.suppress(OSError):  # what Python's own buffer still holds
        raw.close()


class Stuck(io.StringIO):
    """A pipe that nobody reads, until the gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def write(self, text: str) -> int:
        assert self.gate.wait(HANG_S)
        return super().write(text)


def test_a_stream_that_nobody_reads_holds_up_nobody_and_what_was_dropped_is_counted() -> None:
    raw = Stuck()
    stream = BestEffortStream(raw)
    for number in range(WAITING_AT_MOST + 50):
        stream.write(f"{number}\n")
    raw.gate.set()
    while "messages were not written" not in raw.getvalue():
        stream.write("later\n")
    stream.finish()
    assert raw.getvalue().startswith("0\n1\n2\n")


class Told:
    """A stream of a process, and the log behind it."""

    def __init__(self) -> None:
        self.shown = io.StringIO()
        self.stream = PrintedStream(self.shown)
        self.log: list[str] = []

    def print(self, text: str, end: str = "\n") -> None:
        print(text, end=end, file=self.stream)


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()
    told.stream.begin()
    yield told
    told.stream.end()


def test_a_line_without_an_end_is_logged_at_the_end(told: Told) -> None:
    told.stream.into(told.log.append)
    told.print("begun", end="")
    assert told.log == []
    told.stream.end()
    told.print("after")
    assert told.log == ["begun"]


def test_without_a_run_nothing_is_kept() -> None:
    told = Told()
    told.print("between two leases")
    told.stream.into(told.log.append)
    assert told.log == []
    assert told.shown.getvalue() == "between two leases\n"


def test_other_threads_leave_it_to_the_one_that_has_the_log(told: Told) -> None:
    told.stream.into(told.log.append)
    thread = threading.Thread(target=told.print, args=("from a thread",))
    thread.start()
    thread.join()
    assert told.log == []
    told.print("mine")
    assert told.log == ["from a thread", "mine"]


def test_memory_is_bounded(told: Told) -> None:
    for number in range(KEPT_AT_MOST + 10):
        told.print(str(number))
    told.print("x" * (LONGEST + 5), end="")
    told.stream.into(told.log.append)
    lines = told.log[0].split("\n")
    assert len(lines) == KEPT_AT_MOST
    assert (lines[0], lines[-1]) == ("11", "x" * (LONGEST + 5))


def test_a_log_that_prints_itself_does_not_go_round_in_circles(told: Told) -> None:
    def say(text: str) -> None:
        told.log.append(text)
        told.print("the disk is full")

    told.stream.into(say)
    told.print("hello")
    assert told.log == ["hello"]


def test_nobody_who_prints_fails_for_it() -> None:
    gone = io.StringIO()
    gone.close()
    stream, log = PrintedStream(gone), list[str]()
    stream.begin()
    stream.into(log.append)
    print("nobody reads the stream", file=stream, flush=True)
    assert log == ["nobody reads the stream"]


def test_the_record_names_the_line_that_printed(tmp_path: Path) -> None:
    run = prepare(tmp_path / "run", "error", mode="parallel", now=datetime(2026, 8, 21))
    with printed(), worker_logbook(RunFolder(run.root), "collector", UUID, 1) as log:
        keep_printed()
        log_printed(lambda text: log.say("collector", text))
        print("[2021-01-01 00:00:00][x.py:1][ERROR] forged")
        print("to the other one", file=sys.stderr)
        end_printed()
    first, second = run.worker_log("collector", UUID, 1).read_text().splitlines()
    assert "[test_streams.py:" in first
    assert "[INFO] [2021-01-01" in first, "it forges no record"
    assert second.endswith("to the other one")
