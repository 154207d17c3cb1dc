"""The thread behind a worker's link: it owns the socket, beats, repeats, acknowledges, and notices silence."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeAlias, cast

import psutil
from msgspec.structs import replace

from remuda.wire.channel import Channel
from remuda.wire.codec import ProtocolMismatchError
from remuda.wire.conversation import RefusedError
from remuda.wire.messages import (
    Ack,
    AnyMessage,
    BatchRequest,
    Beat,
    BeatHeard,
    Register,
    Registered,
    Rejected,
    WorkerMessage,
)
from remuda.wire.sockets import DealerSocket, Malformed
from remuda.worker.connector import Connector

_log = logging.getLogger(__name__)

LONGEST_WAIT_S = 1.0
SWITCH_INTERVAL_S = 0.0005
"""How long a busy main thread may keep the interpreter while this thread has something to send. With Python's default
of 5 ms a message waits for 4 ms and more, with this for half a millisecond; throughput did not fall measurably."""
SILENT_BEATS = 3
"""After so many beats without an answer the worker looks whether its coordinator has moved."""
JOIN_S = 2.0
"""How long the thread may take to end after its deadline; it never waits for longer than the socket does."""

Inbox: TypeAlias = "SimpleQueue[AnyMessage | Exception | None]"


class CoordinatorLostError(Exception):
    """Nothing was heard from the coordinator for the death timeout: it has ended, or the network between is cut."""


@dataclass
class Pulse:
    """What the next beat says; written by the main thread, read by the network thread."""

    progress: int = 0
    activity: str = "idle"
    lease: int = 0


class NetworkThread(threading.Thread):
    """Runs one Channel over one socket, and another when the coordinator was started again. `post` and `finish` are
    for the main thread, the rest for itself."""

    def __init__(self, connector: Connector, register: Register, inbox: Inbox, pulse: Pulse) -> None:
        super().__init__(name="remuda-network", daemon=True)
        self.on_failure: Callable[[], None] = lambda: None
        self._connector = connector
        self._register = register
        self._channel = Channel()
        self._inbox = inbox
        self._pulse = pulse
        self._outbox: deque[WorkerMessage] = deque()
        self._wake_sender, self._wake_receiver = socket.socketpair()
        self._wake_sender.setblocking(False)
        self._wake_receiver.setblocking(False)
        self._process = psutil.Process()
        self._registered: Registered | None = None
        self._forgotten = False
        """The coordinator knows nothing of this connection."""
        self._joined = False
        """This connection is registered; until then nothing but the registration is sent."""
        self._unacknowledged_before: list[WorkerMessage] = []
        """What the connection before this one could not deliver."""
        self._heard_s = time.monotonic()
        self._next_look_s = 0.0
        self._next_beat_s = 0.0
        self._finish_by_s: float | None = None

    # --- for the main thread ---

    def post(self, message: WorkerMessage) -> None:
        """Have `message` sent; returns at once."""
        self._outbox.append(message)
        self._wake()

    def finish(self, deadline_s: float) -> bool:
        """End the thread once everything is acknowledged, at the latest after `deadline_s`; True when all was."""
        self._finish_by_s = time.monotonic() + deadline_s
        self._wake()
        self.join(deadline_s + JOIN_S)
        return not self.is_alive() and self.unacknowledged == 0

    @property
    def unacknowledged(self) -> int:
        """Messages posted and not yet acknowledged."""
        return len(self._outbox) + len(self._unacknowledged_before) + self._channel.unacknowledged

    def _wake(self) -> None:
        try:
            self._wake_sender.send(b"\0")
        except BlockingIOError:
            pass  # it has plenty of reasons to wake up already
        except OSError:
            pass  # it has ended: `receive` says why

    # --- the thread ---

    def run(self) -> None:
        """Turn until finished or failed; a failure goes to the inbox, to be raised in the main thread."""
        former_s = sys.getswitchinterval()
        sys.setswitchinterval(min(former_s, SWITCH_INTERVAL_S))
        link = self._connect()
        try:
            while not self._finished(time.monotonic()):
                self._turn(link)
                if self._must_renew(time.monotonic()):
                    link.close()
                    link = self._connect()
        except Exception as error:
            self._inbox.put(error)
            self.on_failure()
        finally:
            link.close()
            sys.setswitchinterval(former_s)
            self._wake_receiver.close()
            self._wake_sender.close()

    def _connect(self) -> DealerSocket:
        """Register over a new connection; what the one before could not deliver is said again once that is done.

        Not its requests for batches: what is acknowledged may still be unanswered, so the learner repeats them all.
        """
        waiting = [*self._unacknowledged_before, *cast("list[WorkerMessage]", self._channel.pending())]
        self._unacknowledged_before = [m for m in waiting if not isinstance(m, Register | BatchRequest)]
        self._channel, self._joined, self._forgotten = Channel(), False, False
        link = self._connector.connect()
        link.watch(self._wake_receiver.fileno())
        register = replace(self._register, lease=self._pulse.lease)
        link.send(self._channel.post(register, time.monotonic()))
        return link

    def _must_renew(self, now_s: float) -> bool:
        """The coordinator has forgotten this worker, or another one is there instead."""
        if self._registered is None or self._finish_by_s is not None:
            return False
        if self._forgotten:
            return True
        if now_s - self._heard_s < SILENT_BEATS * self._registered.beat_interval_s or now_s < self._next_look_s:
            return False
        self._next_look_s = now_s + self._registered.beat_interval_s
        return self._connector.coordinator_moved()

    def _finished(self, now_s: float) -> bool:
        if self._finish_by_s is None:
            return False
        return self.unacknowledged == 0 or now_s >= self._finish_by_s

    def _turn(self, link: DealerSocket) -> None:
        link.wait(self._pause_s(time.monotonic()))
        self._clear_wake()
        now_s = time.monotonic()
        while not self._forgotten and (event := link.receive()) is not None:
            self._heard_s = now_s
            if isinstance(event, Malformed):
                self._refuse_mismatch(event)
                continue
            received = self._channel.receive(event.envelope, now_s)
            ack = self._channel.acknowledge(received.id)
            for envelope in (*received.answers, *([ack] if ack else [])):
                link.send(envelope)
            if received.message is not None:
                self._deliver(received.message, now_s)
        while self._joined and self._unacknowledged_before:
            link.send(self._channel.post(self._unacknowledged_before[0], now_s))
            del self._unacknowledged_before[0]
        while self._joined and self._outbox:
            # Posted before it is taken off, so that `unacknowledged` never misses one on its way.
            link.send(self._channel.post(self._outbox[0], now_s))
            self._outbox.popleft()
        for envelope in self._channel.due(now_s):
            link.send(envelope)
        self._beat_and_listen(link, now_s)

    def _pause_s(self, now_s: float) -> float:
        moments = [now_s + LONGEST_WAIT_S, self._channel.next_due_s(), self._finish_by_s]
        if self._joined:
            moments.append(self._next_beat_s)
        return min(moment for moment in moments if moment is not None) - now_s

    def _clear_wake(self) -> None:
        try:
            while self._wake_receiver.recv(4_096):
                pass
        except BlockingIOError:
            pass

    def _refuse_mismatch(self, event: Malformed) -> None:
        if isinstance(event.error, ProtocolMismatchError):
            raise RefusedError(Rejected("protocol", f"{event.error}; install the same version of Remuda on both sides"))
        _log.warning("dropped what the coordinator's address sent: %s", event.error)

    def _deliver(self, message: AnyMessage, now_s: float) -> None:
        match message:
            case Ack() | BeatHeard():
                return
            case Rejected(code="unknown") if self._registered is not None:
                self._forgotten = True
                return
            case Rejected():
                raise RefusedError(message)
            case Registered():
                self._registered = message
                self._joined = True
                self._next_beat_s = now_s
            case _:
                pass
        self._inbox.put(message)

    def _beat_and_listen(self, link: DealerSocket, now_s: float) -> None:
        if self._registered is None:
            return
        silence_s = now_s - self._heard_s
        if silence_s > self._registered.death_timeout_s:
            raise CoordinatorLostError(
                f"nothing was heard from the coordinator for {silence_s:.1f} s (the limit is "
                f"{self._registered.death_timeout_s:g} s): it has ended, or the network between is cut"
            )
        if self._joined and now_s >= self._next_beat_s:
            self._next_beat_s = now_s + self._registered.beat_interval_s
            link.send(self._channel.post(self._beat(), now_s))

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
