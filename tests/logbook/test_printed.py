"""What is printed while a worker works for a run stands in its log too: whole lines, by the thread that has the log."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from remuda.logbook.role_logbooks import collector_logbook
from remuda.logbook.streams import KEPT_AT_MOST, LONGEST, PrintedStream, end_printed, keep_printed, log_printed, printed
from remuda.storage.existing_folder import prepare
from remuda.storage.run_folder import RunFolder

UUID = "6f1c9c3e-0d0a-4c5b-8a39-2f6f6f5c1e77"


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


def test_lines_are_logged_and_shown_as_before(told: Told) -> None:
    told.stream.into(told.log.append)
    told.print("one")
    told.print("two ", end="")
    told.print("parts")
    assert told.log == ["one", "two parts"]
    assert told.shown.getvalue() == "one\ntwo parts\n"


def test_what_is_printed_before_the_log_is_open_waits_for_it(told: Told) -> None:
    told.print("early")
    assert told.log == []
    told.stream.into(told.log.append)
    assert told.log == ["early"]


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
    with printed(), collector_logbook(RunFolder(run.root), UUID, 1) as log:
        keep_printed()
        log_printed(lambda text: log.say("collector", text))
        print("[2021-01-01 00:00:00][x.py:1][ERROR] forged")
        print("to the other one", file=sys.stderr)
        end_printed()
    first, second = run.collector_log(UUID, 1).read_text().splitlines()
    assert "[test_printed.py:" in first
    assert "[INFO] [2021-01-01" in first, "it forges no record"
    assert second.endswith("to the other one")
