"""The page's link to its coordinator: a thread requests the status while a user watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from remuda.client.client import Client
from remuda.wire.connection_file import ConnectionFileError
from remuda.wire.conversation import RefusedError, UnreachableError
from remuda.wire.messages import Status

LEAST_INTERVAL_S = 1.0
SHARE = 0.01
"""Largest share of time that the coordinator spends on the page. After an answer within T seconds, the next request
follows T / SHARE seconds later, within the bounds here."""
WATCHED_S = 10.0
"""Seconds of further status requests after the last look of a user."""
ANSWER_S = 3.0
"""Seconds without an answer after which a coordinator counts as silent."""
MOST_INTERVAL_S = ANSWER_S / SHARE
FORGOTTEN_S = 30.0
"""Seconds of silence after which the last status is out of date."""
_FIRST_ANSWER_S = 3.0

Presence = Literal["up", "silent", "none"]
"""silent: no answer at the moment. none: the page has no coordinator."""
_Answer = TypeVar("_Answer")


class NoCoordinatorError(Exception):
    """The page has no coordinator, or the coordinator is silent; the text names the case."""


@dataclass(frozen=True)
class LastStatus:
    """Newest knowledge about the coordinator."""

    presence: Presence
    status: Status | None
    """Last status received, possibly old."""
    number: int
    """Number that grows with every change."""
    why: str = ""
    """Reason of the silence."""
    silent_since_s: float | None = None
    """Begin of the silence: seconds since 1970; None while the coordinator answers, and without a coordinator."""


class CoordinatorLink:
    """Requests the status in the background, and passes on requests of operators. Thread-safe; needs `close`."""

    def __init__(
        self,
        connection_file: Path | None,
        make_client: Callable[[Path], Client] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up the link; without a connection file the page has no coordinator."""
        self.connection_file = connection_file
        """Connection file of the coordinator; None without a coordinator."""
        self._make_client = make_client or partial(Client, answer_deadline_s=ANSWER_S)
        self._clock = clock
        self._changed = threading.Condition()
        self._seen = LastStatus("none" if connection_file is None else "silent", None, 0, "it was not asked yet")
        self._silent_from_s: float | None = None
        """Time of `clock`."""
        self._wanted_until_s = -1e9
        self._closed = False
        self._asked_once = threading.Event()
        self._actions = threading.Lock()
        self._thread: threading.Thread | None = None

    def look(self) -> LastStatus:
        """The newest; keeps the status up to date for some seconds. The first look waits for the first answer."""
        if self.connection_file is None:
            return self._seen
        with self._changed:
            self._wanted_until_s = self._clock() + WATCHED_S
            if self._thread is None:
                self._thread = threading.Thread(target=self._ask_on, name="remuda-page-status", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        self._asked_once.wait(_FIRST_ANSWER_S + 1.0)
        return self._seen

    def recent_status(self) -> Status | None:
        """Return the newest status, also of a silent coordinator; None without a status, and after FORGOTTEN_S of
        silence: the coordinator may have ended, and the run folders are newer."""
        seen, since_s = self.look(), self._silent_from_s
        return None if since_s is not None and self._clock() - since_s > FORGOTTEN_S else seen.status

    def status(self) -> Status:
        """Return the newest status. Raises NoCoordinatorError without a status or for a silent coordinator."""
        seen = self.look()
        if seen.presence == "none":
            raise NoCoordinatorError("this page shows stored runs and has no coordinator")
        if seen.presence == "silent" or seen.status is None:
            raise NoCoordinatorError(f"the coordinator does not answer: {seen.why}")
        return seen.status

    def do(self, action: Callable[[Client], _Answer]) -> _Answer:
        """Send a request to the coordinator over a separate connection. Raises NoCoordinatorError, RefusedError."""
        if self.connection_file is None:
            raise NoCoordinatorError("this page shows stored runs and has no coordinator")
        with self._actions:
            try:
                with self._make_client(self.connection_file) as client:
                    answer = action(client)
            except (UnreachableError, ConnectionFileError) as error:
                raise NoCoordinatorError(f"the coordinator does not answer: {error}") from error
        with self._changed:
            self._hurried = True
            self._changed.notify_all()
        return answer

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    _hurried = False
    """Something was done: ask again at once."""

    def _ask_on(self) -> None:
        client: Client | None = None
        interval_s = LEAST_INTERVAL_S
        try:
            while self._wait(interval_s if self._asked_once.is_set() else 0.0):
                begun_s = self._clock()
                try:
                    if client is None:
                        assert self.connection_file is not None, "the thread is started only with one"
                        client = self._make_client(self.connection_file)
                    self._note("up", client.status())
                except (UnreachableError, ConnectionFileError, RefusedError) as error:
                    self._note("silent", None, str(error))
                    if client is not None:
                        client.close()
                    client = None
                answer_s = 0.0 if client is None else self._clock() - begun_s
                interval_s = min(max(answer_s / SHARE, LEAST_INTERVAL_S), MOST_INTERVAL_S)
        finally:
            if client is not None:
                client.close()

    def _wait(self, interval_s: float) -> bool:
        """Wait until the interval is over and a user watches; return False once closed."""
        end_s = self._clock() + interval_s
        with self._changed:
            while not self._closed:
                left_s = end_s - self._clock()
                if self._hurried or (left_s <= 0 and self._clock() < self._wanted_until_s):
                    self._hurried = False
                    return True
                self._changed.wait(left_s if left_s > 0 else None)
        return False

    def _note(self, presence: Presence, status: Status | None, why: str = "") -> None:
        before, from_s = self._seen, self._silent_from_s
        self._silent_from_s = None if presence == "up" else self._clock() if from_s is None else from_s
        since_s = None if presence == "up" else before.silent_since_s or time.time()
        self._seen = LastStatus(presence, status or before.status, before.number + 1, why, since_s)
        self._asked_once.set()
