"""A worker's side of the network: one session, served by two threads in turn.

A turn reads arrived messages and sends due messages. The main thread makes a turn whenever it looks for messages, so no
message passes between threads: passing would cost a busy main thread the interpreter lock twice, about a hundred
microseconds each. While the main thread is busy, a second thread, the stand-in, makes the turns: sends beats,
acknowledges and repeats.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from remuda.wire.messages import AnyMessage, Register, WorkerMessage
from remuda.wire.patience import Patience
from remuda.worker.session import Connector, Pulse, Session

STAND_IN_S = 0.1
"""Time without a turn of the main thread after which the stand-in makes a turn."""
FINISH_PAUSE_S = 0.02
"""Longest pause between two checks for missing acknowledgements, which the stand-in may have received."""
JOIN_S = 2.0
"""Seconds for the end of the stand-in, which never blocks for long."""

Inbox: TypeAlias = "deque[AnyMessage | Exception | None]"
"""For the main thread: messages, an error to raise, or None for a call of `wake`."""


class Network:
    """A Session for several threads: `wait` and `finish` are for the main thread, all else for any thread."""

    def __init__(
        self,
        connector: Connector,
        register: Register,
        inbox: Inbox,
        pulse: Pulse,
        on_failure: Callable[[], None],
        patience: Patience,
    ) -> None:
        """Connects and sends `register`; other messages wait for the answer."""
        self._inbox = inbox
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._wake_sender, self._wake_receiver = socket.socketpair()
        self._wake_sender.setblocking(False)
        self._wake_receiver.setblocking(False)
        self._turned_s = time.monotonic()
        self._main_waits = False
        self._failed = False
        self._finished = threading.Event()
        self._session = Session(connector, register, pulse, inbox.append, patience)
        self._watch()
        self._stand_in = threading.Thread(target=self._run_stand_in, name="remuda-network", daemon=True)
        self._stand_in.start()

    def post(self, message: WorkerMessage) -> None:
        """Send `message` now, and again until it is acknowledged."""
        with self._lock:
            now_s = time.monotonic()
            if self._session.post(message, now_s, sends=not self.over):
                self._turn(now_s)  # sending may have cleared the signal that something has arrived

    def turn(self) -> None:
        """Put arrived messages into the inbox, and send due messages. An error goes into the inbox, to be raised by its
        reader."""
        with self._lock:
            self._turn(time.monotonic())

    def wait(self, timeout_s: float) -> None:
        """Return when something is in the inbox or may have arrived, when something is due, or at the timeout."""
        with self._lock:
            if self._inbox:
                return
            self._main_waits = True
            now_s = time.monotonic()
            pause_s = min(timeout_s, self._session.due_s(now_s) - now_s)
        self._pause(pause_s)
        self._main_waits = False

    def wake(self) -> None:
        """Let `wait` return. Also for signal handlers: takes no lock."""
        with contextlib.suppress(OSError):  # the pipe is full, so it wakes up anyway; or the network is closed
            self._wake_sender.send(b"\0")

    def finish(self, deadline_s: float) -> bool:
        """Wait until everything is acknowledged, at most `deadline_s`, and end; True if all was acknowledged. Does not
        wait for a silent coordinator."""
        end_s = time.monotonic() + deadline_s
        self.turn()
        while self._worth_waiting and (left_s := end_s - time.monotonic()) > 0:
            self._pause(min(left_s, FINISH_PAUSE_S))
            self.turn()
        self._end()
        return self.unacknowledged == 0 and not self._failed

    @property
    def unacknowledged(self) -> int:
        """Messages posted and not yet acknowledged."""
        return self._session.unacknowledged

    @property
    def over(self) -> bool:
        """True if the network has failed or finished: nothing is sent or received any more."""
        return self._failed or self._finished.is_set()

    @property
    def _worth_waiting(self) -> bool:
        return bool(self.unacknowledged) and not self.over and self._session.coordinator_answers(time.monotonic())

    # --- inside: the lock is held ---

    def _turn(self, now_s: float) -> None:
        if self.over:
            return
        self._turned_s = now_s
        watched = self._session.socket
        try:
            self._session.turn(now_s)
        except Exception as error:
            self._failed = True
            self._inbox.append(error)
            self._on_failure()
        renewed = self._session.socket is not watched
        if renewed:
            self._watch()
        if self._main_waits and (renewed or self._inbox):  # it waits for the closed socket, or for the inbox
            self.wake()

    def _watch(self) -> None:
        """Poll the session's present socket, its admission events, and the pipe of `wake`."""
        self._arrivals = select.poll()
        self._arrivals.register(self._session.socket.fileno(), select.POLLIN)
        self._arrivals.register(self._session.socket.admission_fileno(), select.POLLIN)
        self._arrivals.register(self._wake_receiver.fileno(), select.POLLIN)

    # --- inside ---

    def _run_stand_in(self) -> None:
        """Make turns while the main thread is busy; a waiting main thread makes its own turns."""
        pause_s = STAND_IN_S
        while not self._finished.wait(pause_s):
            with self._lock:
                now_s = time.monotonic()
                if not self._main_waits and now_s >= self._stand_in_s(now_s):
                    self._turn(now_s)
                away = not self._main_waits and not self.over
                pause_s = max(0.001, self._stand_in_s(now_s) - now_s) if away else STAND_IN_S

    def _stand_in_s(self, now_s: float) -> float:
        """Return the time of the next turn, if the main thread does not make one before."""
        return min(self._turned_s + STAND_IN_S, self._session.due_s(now_s))

    def _pause(self, pause_s: float) -> None:
        self._arrivals.poll(max(0.0, 1_000 * pause_s))
        with contextlib.suppress(BlockingIOError):
            while self._wake_receiver.recv(4_096):
                pass

    def _end(self) -> None:
        if self._finished.is_set():
            return
        self._finished.set()
        self._stand_in.join(JOIN_S)
        with self._lock:
            self._session.close()
            self._wake_receiver.close()
            self._wake_sender.close()
