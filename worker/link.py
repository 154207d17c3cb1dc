"""A worker's connection to its coordinator: a session for the worker's main thread, served by two threads in turn.

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
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol, TypeAlias, TypeVar

from remuda.wire.codec import Envelope, check
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.conversation import no_answer
from remuda.wire.messages import (
    AnyMessage,
    Bye,
    Drain,
    Drained,
    InferenceServers,
    Phase,
    Register,
    Registered,
    WorkerMessage,
    shortened,
)
from remuda.wire.patience import Patience
from remuda.worker.session import IDLE, Activity, Connector, Pulse, Session

OfLease = TypeVar("OfLease", Drain, InferenceServers, Registered)
STAND_IN_S = 0.1
"""Time without a turn of the main thread after which the stand-in makes a turn."""
FINISH_PAUSE_S = 0.02
"""Longest pause between two checks for missing acknowledgements, which the stand-in may have received."""
JOIN_S = 2.0
"""Seconds for the end of the stand-in, which never blocks for long."""

Inbox: TypeAlias = "deque[AnyMessage | Exception | None]"
"""For the main thread: messages, an error to raise, or None for a call of `wake`."""


@dataclass(frozen=True)
class WorkerIdentity:
    """One incarnation of a worker. Chunks, or reanalyses, are numbered through the whole
    incarnation, over all leases."""

    uuid: str
    incarnation: int
    _sequence: Iterator[int] = field(default_factory=count)

    def next_sequence(self) -> int:
        """Return the number of its next chunk or reanalysis: 0, 1, 2 … without gaps."""
        return next(self._sequence)


class WorkLink(Protocol):
    """Methods of a link for the work under a lease; see Link. Serial mode has a link in memory."""

    def send(self, message: WorkerMessage) -> None: ...
    def drain_arrived(self, lease: int) -> bool: ...
    def progress(self, amount: int) -> None: ...
    def activity(self, phase: Phase, text: str, *, lacks_bytes: int = 0) -> None: ...
    def during(self, phase: Phase, text: str) -> AbstractContextManager[None]: ...


class Link:
    """Sends and receives for the main thread, and sends beats while the main thread is busy.

    Beats, repetitions and acknowledgements continue while the main thread steps an environment or updates a network: a
    background thread takes over. Only `send` and `wake` may be called by other threads.

    The layers: `Link` is for the main thread, `_Network` shares one session between two threads, and
    `Session` (session.py) talks with the coordinator over one connection after another.
    """

    def __init__(
        self,
        connection: ConnectionFile,
        register: Register,
        *,
        look_again: Callable[[], ConnectionFile | None] = lambda: None,
        on_failure: Callable[[], None] | None = None,
        patience: Patience | None = None,
    ) -> None:
        """`look_again` returns the present connection file, if any: a restarted coordinator may listen at another
        address. `on_failure` is called once, by any thread, as soon as `receive` has an error to raise, so that a
        worker can be ended even if its main thread no longer receives. `patience` limits the wait for a silent
        coordinator."""
        self._connection = connection
        self._look_again = look_again
        self._register = register
        self._on_failure = on_failure or (lambda: None)
        self._patience = patience or Patience()
        self._inbox: Inbox = deque()
        self._early: deque[AnyMessage] = deque()
        self._pulse = Pulse()
        self._connector: Connector | None = None
        self._network: _Network | None = None
        self._failure: Exception | None = None

    @property
    def connection(self) -> ConnectionFile:
        """The connection file of the present connection."""
        return self._connection if self._connector is None else self._connector.connection

    def start(self, deadline_s: float, *, given_up: Callable[[], bool] = lambda: False) -> Registered:
        """Connect and register.

        Raises UnreachableError if no answer comes within `deadline_s` or before `given_up` (called after each `wake`),
        and RefusedError if the coordinator refuses.
        """
        if self._network is not None:
            raise RuntimeError("the link was started already")
        connector = self._connector = Connector(self._connection, self._register, self._look_again)
        self._network = _Network(connector, self._register, self._inbox, self._pulse, self._on_failure, self._patience)
        end_s = time.monotonic() + deadline_s
        early: deque[AnyMessage] = deque()
        while (left_s := end_s - time.monotonic()) > 0 and not given_up():
            message = self.receive(left_s)
            if isinstance(message, Registered):
                self._early = early
                return message
            if message is not None:
                early.append(message)  # the first Assign, when the answer was lost and had to be asked for again
        self._network.finish(0.0)
        self._failure = no_answer(self._connection, deadline_s)
        raise self._failure

    def send(self, message: WorkerMessage) -> None:
        """Deliver `message`, exactly once unless it is a Beat. Do not change its arrays afterwards.

        Returns at once. Raises CodecError if the coordinator would refuse the message.
        """
        check(Envelope(1, 0, 1, message))
        self._running().post(message)

    def receive(self, timeout_s: float) -> AnyMessage | None:
        """Return the next message, or None after `timeout_s` seconds or a call of `wake`.

        Raises, now and at every later call, CoordinatorLostError if the coordinator was silent for longer than the
        limit of `patience`, and RefusedError if it has sent Rejected.
        """
        if self._failure is not None:
            raise self._failure
        if self._early:
            return self._early.popleft()
        if not self._inbox and self._network is not None:
            self._network.turn()
            if timeout_s > 0:
                self._wait(self._network, timeout_s)
        if not self._inbox:
            return None
        item = self._inbox.popleft()
        if isinstance(item, Exception):
            self._failure = item
            raise item
        return item

    def drain_arrived(self, lease: int) -> bool:
        """True if a Drain of this lease has arrived and waits for `receive`; for long work."""
        return self.arrived(Drain, lease) is not None

    def arrived(self, kind: type[OfLease], lease: int) -> OfLease | None:
        """Return the newest message of this kind about the lease that waits for `receive`; None without any.

        Known within a tenth of a second, even without calls of `receive`.
        """
        arrived = [*self._early, *self._inbox]  # a copy: another thread adds to it
        return next((each for each in reversed(arrived) if isinstance(each, kind) and each.lease == lease), None)

    def _wait(self, network: _Network, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        while not self._inbox and (left_s := end_s - time.monotonic()) > 0:
            network.wait(left_s)
            network.turn()

    def wake(self) -> None:
        """Let a waiting `receive` (or the next call) return None. May be called by any thread and
        by signal handlers."""
        self._inbox.append(None)
        if self._network is not None:
            self._network.wake()

    def progress(self, amount: int) -> None:
        """Count work done by this process. The total is sent with beats."""
        self._pulse.progress += amount

    def activity(self, phase: Phase, text: str, *, lacks_bytes: int = 0) -> None:
        """Report the worker's activity; the text is for people. Sent with beats. `lacks_bytes`: see Beat."""
        self._pulse.activity = Activity(phase, text, lacks_bytes)

    @contextmanager
    def during(self, phase: Phase, text: str) -> Generator[None]:
        """Report this activity within the block, and the former activity again after it."""
        before, self._pulse.activity = self._pulse.activity, Activity(phase, text)
        try:
            yield
        finally:
            self._pulse.activity = before

    @property
    def doing(self) -> Activity:
        """Last reported activity."""
        return self._pulse.activity

    def begin_lease(self, lease: int) -> None:
        """Beats name this lease from now on."""
        self._pulse.lease = lease

    def forget_lease(self) -> None:
        """Leave the lease after its end by the coordinator; later beats name no lease."""
        self._pulse.lease, self._pulse.activity = 0, IDLE

    def end_lease(self, lease: int) -> None:
        """Report the lease as Drained; beats name none from now on."""
        self.forget_lease()
        self.send(Drained(lease))

    def close(self, reason: str, deadline_s: float) -> bool:
        """Send Bye, wait until every message is acknowledged, and end the thread.

        Returns False if a message is not acknowledged: the deadline passed, the coordinator is silent, or the link had
        failed. May be called again.
        """
        if self._network is None:
            return True
        if not self._network.over:
            self._network.post(Bye(shortened(reason)))
        return self._network.finish(deadline_s)

    def _running(self) -> _Network:
        if self._network is None:
            raise RuntimeError("the link is not started")
        return self._network


class _Network:
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
