"""A worker's side of the network: one socket, turned by whichever thread has time for it.

The main thread turns it whenever it looks for messages, so that none is handed from thread to thread: a handover
costs a busy main thread the interpreter twice, some hundred microseconds each. While the main thread is away with
work of its own, a second one stands in: it beats, acknowledges and repeats.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

import psutil
from msgspec.structs import replace

from remuda.wire.channel import Channel
from remuda.wire.codec import CodecError, ProtocolMismatchError
from remuda.wire.conversation import RefusedError
from remuda.wire.messages import (
    Ack,
    AnyMessage,
    BatchRequest,
    Beat,
    BeatHeard,
    Bye,
    Register,
    Registered,
    Rejected,
    WorkerFailed,
    WorkerMessage,
)
from remuda.wire.sockets import Malformed
from remuda.worker.connector import Connector
from remuda.worker.stacks import stacks

_log = logging.getLogger(__name__)

IDLE = "idle"
"""What a worker without a lease does."""
LONGEST_WAIT_S = 1.0
STAND_IN_S = 0.1
"""How long the main thread may be away before the other one stands in."""
FINISH_PAUSE_S = 0.02
"""Longest pause between two looks at what is acknowledged, which the other thread may have heard of."""
SILENT_BEATS = 3
"""After so many beats without an answer the worker looks whether its coordinator has moved."""
STALE_S = 2.0
"""A coordinator that has not answered a worker's first word for so long may be dead, and its connection file stale."""
LONGEST_STACKS = 100_000
JOIN_S = 2.0
"""How long the thread that stands in may take to end; it never waits."""

Inbox: TypeAlias = "deque[AnyMessage | Exception | None]"
"""What the main thread has to see: messages, an error to raise, or None where it was woken."""


class CoordinatorLostError(Exception):
    """Nothing was heard from the coordinator for the death timeout: it has ended, or the network between is cut."""


@dataclass
class Pulse:
    """What the next beat says; written by the main thread, read by whoever sends it."""

    progress: int = 0
    activity: str = IDLE
    lease: int = 0


class Network:
    """One Channel over one socket, and another over a new one once the coordinator was started again.

    `wait` and `finish` are for the main thread, the rest for any."""

    def __init__(
        self, connector: Connector, register: Register, inbox: Inbox, pulse: Pulse, on_failure: Callable[[], None]
    ) -> None:
        """Connects and sends `register`; until that is answered nothing else is sent."""
        self._connector = connector
        self._register = register
        self._channel = Channel()
        self._inbox = inbox
        self._pulse = pulse
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._wake_sender, self._wake_receiver = socket.socketpair()
        self._wake_sender.setblocking(False)
        self._wake_receiver.setblocking(False)
        self._process = psutil.Process()
        self._registered: Registered | None = None
        self._waiting: deque[WorkerMessage] = deque()
        """To be sent once this connection is registered."""
        self._forgotten = False
        """The coordinator knows nothing of this connection."""
        self._heard_s = time.monotonic()
        self._next_beat_s = 0.0
        self._beat_interval_s = 1.0
        self._turned_s = time.monotonic()
        self._main_waits = False
        self._leaving = False
        """Goodbye was said: a beat after it would be answered as a stranger's, and this worker would join again."""
        self._failed = False
        self._finished = threading.Event()
        self._stand_in = threading.Thread(target=self._be_stand_in, name="remuda-network", daemon=True)
        self._connect()
        self._stand_in.start()

    def post(self, message: WorkerMessage) -> None:
        """Send `message` now, and again until it is acknowledged."""
        with self._lock:
            self._leaving = self._leaving or isinstance(message, Bye)
            if not self._joined:
                self._waiting.append(message)
                return
            envelope = self._channel.post(message, time.monotonic())
            if not self.over:
                self._link.send(envelope)
                self._turn(time.monotonic())  # sending may have swallowed the sign that something has arrived

    def turn(self) -> None:
        """Put what has arrived into the inbox, and send what is due. A failure goes to the inbox, to be raised."""
        with self._lock:
            self._turn(time.monotonic())

    def wait(self, timeout_s: float) -> None:
        """Return when something is in the inbox or may have arrived, when something is due, or at the timeout."""
        with self._lock:
            if self._inbox:
                return
            self._main_waits = True
            pause_s = min(timeout_s, self._due_s() - time.monotonic())
        self._pause(pause_s)
        self._main_waits = False

    def wake(self) -> None:
        """Let `wait` return. Also for signal handlers: it takes no lock."""
        with contextlib.suppress(OSError):  # it has plenty of reasons to wake up already, or it is over
            self._wake_sender.send(b"\0")

    def finish(self, deadline_s: float) -> bool:
        """Go on until everything is acknowledged, at most for `deadline_s`, and end; True when all was."""
        end_s = time.monotonic() + deadline_s
        self.turn()
        while self.unacknowledged and not self.over and (left_s := end_s - time.monotonic()) > 0:
            self._pause(min(left_s, FINISH_PAUSE_S))
            self.turn()
        self._end()
        return self.unacknowledged == 0 and not self._failed

    @property
    def unacknowledged(self) -> int:
        """Messages posted and not yet acknowledged."""
        return self._channel.unacknowledged + len(self._waiting)

    @property
    def over(self) -> bool:
        """Failed or finished: nothing is sent or received any more."""
        return self._failed or self._finished.is_set()

    # --- inside: the lock is held ---

    def _connect(self) -> None:
        """Register over a new connection; what the one before could not deliver is said again once that is done.

        Not its requests for batches: what is acknowledged may still be unanswered, so the learner repeats them all.
        """
        undelivered = [*cast("list[WorkerMessage]", self._channel.pending()), *self._waiting]
        self._waiting = deque(m for m in undelivered if not isinstance(m, Register | BatchRequest))
        self._channel, self._joined, self._forgotten = Channel(), False, False
        self._link = self._connector.connect()
        self._arrivals = select.poll()
        self._arrivals.register(self._link.fileno(), select.POLLIN)
        self._arrivals.register(self._wake_receiver.fileno(), select.POLLIN)
        register = replace(self._register, lease=self._pulse.lease)
        self._link.send(self._channel.post(register, time.monotonic()))

    def _reconnect(self) -> None:
        self._link.close()
        self._connect()
        if self._main_waits:  # at the connection that is closed
            self.wake()

    def _turn(self, now_s: float) -> None:
        if self.over:
            return
        self._turned_s = now_s
        try:
            self._take_arrivals(now_s)
            if self._forgotten:
                self._reconnect()
            if now_s >= self._due_s():
                for envelope in self._channel.due(now_s):
                    self._link.send(envelope)
                self._beat_and_listen(now_s)
        except Exception as error:
            self._failed = True
            self._inbox.append(error)
            self._on_failure()
        if self._inbox and self._main_waits:
            self.wake()

    def _take_arrivals(self, now_s: float) -> None:
        while not self._forgotten and (event := self._link.receive()) is not None:
            self._heard_s = now_s
            if isinstance(event, Malformed):
                self._refuse_mismatch(event)
                continue
            received = self._channel.take(event.envelope, now_s)
            for envelope in received.answers:
                self._link.send(envelope)
            if received.message is not None:
                self._deliver(received.message, now_s)

    def _due_s(self) -> float:
        """When something is to be sent, or silence to be noticed."""
        due_s = self._channel.next_due_s()
        if self._registered is not None:
            return self._next_beat_s if due_s is None else min(due_s, self._next_beat_s)
        return time.monotonic() + LONGEST_WAIT_S if due_s is None else due_s

    def _refuse_mismatch(self, event: Malformed) -> None:
        if isinstance(event.error, ProtocolMismatchError):
            raise RefusedError(Rejected("protocol", f"{event.error}; install the same version of Remuda on both sides"))
        _log.warning("dropped what the coordinator's address sent: %s", event.error)

    def _deliver(self, message: AnyMessage, now_s: float) -> None:
        match message:
            case Ack():
                return
            case BeatHeard():
                self._beat_interval_s = message.next_s
                return
            case Rejected(code="unknown") if self._registered is not None:
                self._forgotten = not self._leaving or self._channel.unacknowledged > 0
                return
            case Rejected():
                if message.code == "dismissed" and self._pulse.lease:
                    self._say_where_it_hangs(message.reason, now_s)
                raise RefusedError(message)
            case Registered():
                self._registered, self._joined = message, True
                self._beat_interval_s, self._next_beat_s = message.beat_interval_s, now_s
                while self._waiting:
                    self._link.send(self._channel.post(self._waiting.popleft(), now_s))
            case _:
                pass
        self._inbox.append(message)

    def _say_where_it_hangs(self, reason: str, now_s: float) -> None:
        """Said once, and as well as can be: the main thread is lost, and the process ends in any case."""
        failed = WorkerFailed(self._pulse.lease, f"dismissed: {reason}"[:1_000], stacks()[-LONGEST_STACKS:])
        with contextlib.suppress(CodecError):
            self._link.send(self._channel.post(failed, now_s))

    def _beat_and_listen(self, now_s: float) -> None:
        silence_s = now_s - self._heard_s
        if self._registered is None:
            if silence_s > STALE_S and self._connector.coordinator_moved():
                self._reconnect()  # the connection file was that of a coordinator that is dead
            return
        if silence_s > self._registered.death_timeout_s:
            raise CoordinatorLostError(
                f"nothing was heard from the coordinator for {silence_s:.1f} s (the limit is "
                f"{self._registered.death_timeout_s:g} s): it has ended, or the network between is cut"
            )
        if now_s >= self._next_beat_s:
            self._next_beat_s = now_s + self._beat_interval_s
            if self._joined and not self._leaving:
                self._link.send(self._channel.post(self._beat(), now_s))
            if silence_s > SILENT_BEATS * self._beat_interval_s and self._connector.coordinator_moved():
                self._reconnect()

    def _beat(self) -> Beat:
        with self._process.oneshot():
            cpu = self._process.cpu_times()
            return Beat(
                progress=self._pulse.progress,
                activity=self._pulse.activity[:1_000],
                lease=self._pulse.lease,
                rss_bytes=self._process.memory_info().rss,
                cpu_s=cpu.user + cpu.system,
            )

    # --- inside ---

    def _be_stand_in(self) -> None:
        """Turn in place of a main thread that is away; one that waits turns by itself as soon as there is reason to."""
        pause_s = STAND_IN_S
        while not self._finished.wait(pause_s):
            with self._lock:
                now_s = time.monotonic()
                if not self._main_waits and now_s >= min(self._turned_s + STAND_IN_S, self._due_s()):
                    self._turn(now_s)
                due_s = min(self._turned_s + STAND_IN_S, self._due_s())
                pause_s = STAND_IN_S if self._main_waits or self.over else max(0.001, due_s - now_s)

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
            self._link.close()
            self._wake_receiver.close()
            self._wake_sender.close()
