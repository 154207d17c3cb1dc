"""A sink for an external service, in a separate thread, so that nothing waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Protocol

_WAITING_ROWS = 1_000
"""Rows that may wait for a service; if there are more, it is too slow and gets no more rows."""


class Service(Protocol):
    """A run in an experiment tracker."""

    def log(self, record: Mapping[str, float]) -> None:
        """Take a row; record["env_step"] is its place."""
        ...

    def finish(self) -> None:
        """The run is over."""
        ...


class SinkError(Exception):
    """The service has failed, is too slow, or does not end."""


class BackgroundSink:
    """Passes rows on to a service. An error of the service is raised once, at the next row or by `finish`."""

    def __init__(self, path: Path, connect: Callable[[], Service], *, takes_callbacks: bool = False) -> None:
        """`path` is the folder that is the service's own; `connect` is called in the thread, as all that follows.
        `takes_callbacks`: also rows that have numbers of callbacks alone."""
        self.path, self.takes_callbacks = path, takes_callbacks
        self._connect = connect
        self._rows: Queue[dict[str, float] | None] = Queue(_WAITING_ROWS)
        self._error: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"sink {path.name}", daemon=True)
        self._thread.start()

    def row(self, record: Mapping[str, float]) -> None:
        """Pass on a row. Raises SinkError; never waits."""
        self._raise()
        try:
            self._rows.put_nowait(dict(record))
        except Full:
            raise SinkError(f"{_WAITING_ROWS} rows wait for it") from None

    def close(self) -> None:
        """No more rows come; see `finish`. May be called again."""
        if not self._closed:
            self._closed = True
            threading.Thread(target=self._rows.put, args=(None,), daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether the service is still working, or has failed without this being raised yet."""
        return self._thread.is_alive() or self._error is not None

    def finish(self, deadline_s: float) -> None:
        """After `close`, wait for the service until `deadline_s` (time.monotonic). Raises SinkError."""
        self._thread.join(max(deadline_s - time.monotonic(), 0.0))
        self._raise()
        if self._thread.is_alive():
            raise SinkError("it did not end in time")

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise SinkError(f"{type(error).__name__}: {error}") from error

    def _work(self) -> None:
        try:
            service = self._connect()
            while (row := self._rows.get()) is not None:
                service.log(row)
            service.finish()
        except (Exception, SystemExit) as error:  # somebody else's code may even want to end the process
            self._error = error
            with suppress(Empty):  # rows that nobody takes any more would block `close`'s thread for good
                while True:
                    self._rows.get_nowait()
