"""A service in the background holds nobody up, whatever it does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from remuda.logbook.trackers import BackgroundSink, Service, SinkError
from remuda.tests.patience import HANG_S


class Tracker:
    """Somebody's service: notes what it is told, and may fail or hang at any point."""

    def __init__(self, *, log: Callable[[], None] = lambda: None, finish: Callable[[], None] = lambda: None) -> None:
        self.rows: list[Mapping[str, float]] = []
        self.finished = False
        self._log, self._finish = log, finish

    def log(self, record: Mapping[str, float]) -> None:
        self._log()
        self.rows.append(record)

    def finish(self) -> None:
        self._finish()
        self.finished = True


def fail(error: BaseException) -> Callable[[], Service]:
    def connect() -> Service:
        raise error

    return connect


def ended(sink: BackgroundSink) -> None:
    """Close it and wait for its end."""
    sink.close()
    sink.finish(time.monotonic() + HANG_S)


def send(sink: BackgroundSink, rows: int) -> None:
    for step in range(rows):
        sink.row({"env_step": step})


def until_failed(sink: BackgroundSink) -> None:
    """Send rows until one is refused."""
    deadline_s = time.monotonic() + HANG_S
    while time.monotonic() < deadline_s:
        sink.row({"env_step": 1})
        threading.Event().wait(0.005)


def test_rows_arrive_in_order_and_then_the_end() -> None:
    tracker = Tracker()
    sink = BackgroundSink(Path("x"), lambda: tracker)
    send(sink, 100)
    ended(sink)
    assert [row["env_step"] for row in tracker.rows] == list(range(100))
    assert tracker.finished
    assert not sink.busy


@pytest.mark.parametrize("error", [OSError("no network"), SystemExit(1), ImportError("half installed")])
def test_a_service_that_cannot_be_reached_fails_at_a_later_row(error: BaseException) -> None:
    sink = BackgroundSink(Path("x"), fail(error))
    with pytest.raises(SinkError, match=f"{type(error).__name__}: {error}"):
        until_failed(sink)


def _the_same(tracker: Tracker) -> Tracker:
    return tracker


def test_a_service_that_fails_at_a_row_or_at_its_end_says_so_once() -> None:
    def refuse() -> None:
        raise ValueError("too long a name")

    for tracker in (Tracker(log=refuse), Tracker(finish=refuse)):
        sink = BackgroundSink(Path("x"), partial(_the_same, tracker))
        sink.row({"env_step": 1})
        with pytest.raises(SinkError, match="ValueError: too long a name"):
            ended(sink)
        sink.finish(time.monotonic())


def test_a_service_that_failed_with_its_queue_full_keeps_no_thread() -> None:
    hang = threading.Event()

    def fail() -> Tracker:
        hang.wait(HANG_S)
        raise ValueError("no such project")

    threads = set(threading.enumerate())
    sink = BackgroundSink(Path("x"), fail)
    with pytest.raises(SinkError, match="1000 rows are waiting"):
        send(sink, 2_000)
    hang.set()
    with pytest.raises(SinkError, match="no such project"):
        sink.finish(time.monotonic() + HANG_S)
    sink.close()
    for thread in set(threading.enumerate()) - threads:
        thread.join(HANG_S)
        assert not thread.is_alive()


def test_a_service_that_hangs_is_not_waited_for() -> None:
    hang = threading.Event()

    def wait() -> None:
        hang.wait(HANG_S)

    sink = BackgroundSink(Path("x"), lambda: Tracker(log=wait))
    started_s = time.monotonic()
    with pytest.raises(SinkError, match="1000 rows are waiting"):
        send(sink, 2_000)
    sink.close()
    with pytest.raises(SinkError, match="did not end in time"):
        sink.finish(time.monotonic() + 0.01)
    assert sink.busy
    assert time.monotonic() - started_s < HANG_S
    hang.set()
    sink.finish(time.monotonic() + HANG_S)
