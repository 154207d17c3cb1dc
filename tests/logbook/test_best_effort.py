"""Output that is best effort costs its writer neither time nor an error."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading

import pytest

from remuda.logbook.streams import WAITING_AT_MOST, BestEffortStream, best_effort_stderr
from remuda.tests.patience import HANG_S


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
