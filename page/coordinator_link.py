"""The page's line to its coordinator: one thread asks for the status while somebody looks, and for nobody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from remuda.client.client import Client
from remuda.wire.connection_file import ConnectionFileError
from remuda.wire.conversation import RefusedError, UnreachableError
from remuda.wire.messages import Status

LEAST_INTERVAL_S = 1.0
SHARE = 0.01
"""The share of its time in which the coordinator may be busy with the page, at most. After an answer that took T
seconds, the next request follows T / SHARE seconds later, within the bounds here."""
WATCHED_S = 10.0
"""For so long after somebody has looked the status is asked for."""
ANSWER_S = 3.0
"""A coordinator that takes longer is silent."""
MOST_INTERVAL_S = ANSWER_S / SHARE
FORGOTTEN_S = 30.0
"""After so long a silence the last status says nothing about the present any more."""
_FIRST_ANSWER_S = 3.0

Presence = Literal["up", "silent", "none"]
"""silent: it does not answer, and may come back. none: this page has no coordinator."""
_Answer = TypeVar("_Answer")


class NoCoordinatorError(Exception):
    """There is no coordinator, or it does not answer; the text says which."""


@dataclass(frozen=True)
class LastStatus:
    """The newest that is known of the coordinator."""

    presence: Presence
    status: Status | None
    """The last one that it gave; it may be old."""
    number: int
    """Grows with each change."""
    why: str = ""
    """Why it does not answer."""
    silent_since_s: float | None = None
    """When it fell silent: seconds since 1970; None while it answers, and without a coordinator."""


class CoordinatorLink:
    """Asks for the status in the background, and passes on what operators want. For any thread; `close` it."""

    def __init__(
        self,
        connection_file: Path | None,
        make_client: Callable[[Path], Client] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without a connection file there is no coordinator."""
        self._connection_file = connection_file
        self._make_client = make_client or _client
        self._clock = clock
        self._changed = threading.Condition()
        self._seen = LastStatus("none" if connection_file is None else "silent", None, 0, "it was not asked yet")
        self._silent_from_s: float | None = None
        """By its clock."""
        self._wanted_until_s = -1e9
        self._closed = False
        self._asked_once = threading.Event()
        self._actions = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def connection_file(self) -> Path | None:
        """Of the coordinator; None if there is none."""
        return self._connection_file

    def look(self) -> LastStatus:
        """The newest; keeps the status up to date for some seconds. The first look waits for the first answer."""
        if self._connection_file is None:
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
        """The newest status, even if the coordinator has just fallen silent; None if there never was one, or if it is
        silent for more than FORGOTTEN_S: it may have ended, and the run folders know more."""
        seen, since_s = self.look(), self._silent_from_s
        return None if since_s is not None and self._clock() - since_s > FORGOTTEN_S else seen.status

    def status(self) -> Status:
        """The newest status. Raises NoCoordinatorError if there is none, or if the coordinator is silent."""
        seen = self.look()
        if seen.presence == "none":
            raise NoCoordinatorError("this page shows stored runs: it belongs to no coordinator")
        if seen.presence == "silent" or seen.status is None:
            raise NoCoordinatorError(f"the coordinator does not answer: {seen.why}")
        return seen.status

    def do(self, action: Callable[[Client], _Answer]) -> _Answer:
        """Ask the coordinator for something, over a connection of its own. Raises NoCoordinatorError, RefusedError."""
        if self._connection_file is None:
            raise NoCoordinatorError("this page shows stored runs: it belongs to no coordinator")
        with self._actions:
            try:
                with self._make_client(self._connection_file) as client:
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
                        assert self._connection_file is not None, "the thread is started only with one"
                        client = self._make_client(self._connection_file)
                    self._note("up", client.status())
                except (UnreachableError, ConnectionFileError, RefusedError) as error:
                    self._note("silent", None, str(error))
                    if client is not None:
                        client.close()
                    client = None
                interval_s = LEAST_INTERVAL_S if client is None else interval_after(self._clock() - begun_s)
        finally:
            if client is not None:
                client.close()

    def _wait(self, interval_s: float) -> bool:
        """Wait until it is time to ask again and somebody looks; False once closed."""
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


def interval_after(answer_s: float) -> float:
    """How long to wait before the next request, after an answer that took so long."""
    return min(max(answer_s / SHARE, LEAST_INTERVAL_S), MOST_INTERVAL_S)


def _client(connection_file: Path) -> Client:
    return Client(connection_file, answer_deadline_s=ANSWER_S)
