"""A worker's session with its coordinator: registering, beats, silence, and registering again."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_hex
from typing import NamedTuple, cast

import psutil
from msgspec.structs import replace

from remuda.wire import sockets
from remuda.wire.channel import Channel
from remuda.wire.codec import CodecError, ProtocolMismatchError
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.conversation import RefusedError
from remuda.wire.keys.folder import CallerKeys, caller_keys, keys_again, no_exchange, not_authorized
from remuda.wire.keys.secret_file import KeyFileError
from remuda.wire.messages import (
    Ack,
    AnyMessage,
    BatchRequest,
    Beat,
    BeatHeard,
    Bye,
    Phase,
    Register,
    Registered,
    Rejected,
    WorkerFailed,
    WorkerMessage,
    shortened,
)
from remuda.wire.patience import Patience
from remuda.wire.sockets import DealerSocket, Malformed, NotLetIn, worker_identity

_log = logging.getLogger(__name__)

LONGEST_WAIT_S = 1.0
SILENT_BEATS = 3
"""Beats without an answer before the worker checks if its coordinator has moved."""
STALE_S = 2.0
"""Seconds without an answer to Register after which the coordinator may be dead, and its connection file stale."""
LONGEST_STACKS = 100_000
"""Most characters of sent stacks."""
AWAY_S = 3.0
"""If this time lies between two turns, this process was stopped, and could not receive anything meanwhile."""
QUIET_S = 3.0
"""Seconds of silence (or SILENT_BEATS beats of a large herd) after which a coordinator counts as deaf."""


class Connector:
    """Makes connections with new identities, so that messages of former connections are recognised."""

    def __init__(
        self, connection: ConnectionFile, register: Register, look_again: Callable[[], ConnectionFile | None]
    ) -> None:
        """`look_again` returns the present connection file of the coordinator, or None without a file."""
        self.connection = connection
        """Connection file of the newest coordinator."""
        self._register = register
        self._look_again = look_again
        self._process = token_hex(8)
        self._session = 0
        self._keys: CallerKeys | None = None

    def connect(self) -> DealerSocket:
        """Return a new connection to the coordinator. Raises KeyFileError without a key for it."""
        register = self._register
        identity = worker_identity(register.worker, register.incarnation, self._process, self._session)
        self._session += 1
        self._keys = self._newest_keys()
        return DealerSocket(self.connection.address, identity, self._keys)

    def keys_changed(self) -> bool:
        """True if `connect` would show another key now than last time. Raises KeyFileError."""
        return keys_again(self.connection, "worker") != self._keys

    def _newest_keys(self) -> CallerKeys:
        """Return the keys in the files; if the files cannot be read, as while a file system is away, the former keys,
        if they are for the same coordinator."""
        try:
            return caller_keys(self.connection, "worker")
        except KeyFileError:
            if self._keys is None or self._keys.server != self.connection.server_key:
                raise
            return self._keys

    @property
    def not_authorized(self) -> str:
        """Error text for a key that the coordinator does not know."""
        return not_authorized(self.connection, self._newest_keys(), "worker")

    @property
    def no_exchange(self) -> str:
        """Error text for an address without the coordinator's key."""
        return no_exchange(self.connection)

    def coordinator_moved(self) -> bool:
        """True if the connection file now names another coordinator, to which the next `connect` goes."""
        found = self._look_again()
        if found is None or found.coordinator == self.connection.coordinator:
            return False
        self.connection = found
        return True


class Activity(NamedTuple):
    """Activity of a worker."""

    phase: Phase
    text: str
    """For people: `waiting for credit`."""
    lacks_bytes: int = 0
    """See Beat."""


IDLE = Activity("idle", "idle")
"""Activity of a worker without a lease."""


@dataclass
class Pulse:
    """Content of the next beat; written by the main thread, read by the sending thread."""

    progress: int = 0
    activity: Activity = IDLE
    lease: int = 0


class Session:
    """One Channel over one socket, and a new Channel over a new socket after a restart of the coordinator.

    Never blocks, and is not thread-safe: its callers use a lock.
    """

    def __init__(
        self,
        connector: Connector,
        register: Register,
        pulse: Pulse,
        deliver: Callable[[AnyMessage], None],
        patience: Patience,
    ) -> None:
        """Connects and sends `register`; other messages wait for the answer. `deliver` gets the messages for the main
        thread; `patience` limits the wait for a silent coordinator."""
        self._connector = connector
        self._register = register
        self._pulse = pulse
        self._deliver = deliver
        self._patience = patience
        self._channel = Channel()
        self._process = psutil.Process()
        self._registered: Registered | None = None
        self._waiting: deque[WorkerMessage] = deque()
        """To be sent when this connection is registered."""
        self._is_unknown = False
        """True if the coordinator does not know this connection."""
        self._heard_s = self._renewed_s = self._turned_s = time.monotonic()
        self._next_beat_s = 0.0
        self._beat_interval_s = 1.0
        self._leaving = False
        """True after Bye: a later beat would be answered with `unknown`, and this worker would register again."""
        self._connect()

    @property
    def unacknowledged(self) -> int:
        """Messages posted and not yet acknowledged."""
        return self._channel.unacknowledged + len(self._waiting)

    def post(self, message: WorkerMessage, now_s: float, *, sends: bool = True) -> bool:
        """Send `message` now, if possible, and again until it is acknowledged. Returns False if the message has to
        wait."""
        self._leaving = self._leaving or isinstance(message, Bye)
        if not self._joined:
            self._waiting.append(message)
            return False
        envelope = self._channel.post(message, now_s)
        if sends:
            self.socket.send(envelope)
        return sends

    def turn(self, now_s: float) -> None:
        """Deliver arrived messages, and send due ones. Raises CoordinatorLostError, RefusedError."""
        self._discount_own_pause(now_s)
        self._take_arrivals(now_s)
        refusal = self.socket.refusal()
        if refusal is not None:
            self._not_let_in(refusal)
        if self._is_unknown:
            self._reconnect()
        if now_s >= self.due_s(now_s):
            self._renew_if_silent(now_s)
            for envelope in self._channel.due(now_s):
                self.socket.send(envelope)
            self._beat_and_listen(now_s)

    def due_s(self, now_s: float) -> float:
        """Return the next time to send something or to check for silence."""
        due_s = self._channel.next_due_s()
        if self._registered is not None:
            return self._next_beat_s if due_s is None else min(due_s, self._next_beat_s)
        return now_s + LONGEST_WAIT_S if due_s is None else due_s

    def coordinator_answers(self, now_s: float) -> bool:
        """True if a message of the coordinator arrived lately."""
        return now_s - self._heard_s <= max(QUIET_S, SILENT_BEATS * self._beat_interval_s)

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def _discount_own_pause(self, now_s: float) -> None:
        """Do not count time in which this process was stopped as silence of the coordinator."""
        away_s, self._turned_s = now_s - self._turned_s, now_s
        if away_s > AWAY_S:
            self._heard_s = min(self._heard_s + away_s, now_s)

    # --- connections ---

    def _connect(self) -> None:
        """Register over a new connection; afterwards, send the undelivered messages of the former connection again.

        Requests for batches are left out: a request may be acknowledged and not answered, so the learner repeats all of
        them.
        """
        undelivered = [*cast("list[WorkerMessage]", self._channel.pending()), *self._waiting]
        self._waiting = deque(m for m in undelivered if not isinstance(m, Register | BatchRequest))
        self._channel, self._joined, self._is_unknown = Channel(), False, False
        self.socket = self._connector.connect()
        """The present connection."""
        register = replace(self._register, lease=self._pulse.lease)
        self.socket.send(self._channel.post(register, time.monotonic()))

    def _reconnect(self) -> None:
        self.socket.close()
        self._connect()

    def _not_let_in(self, refusal: NotLetIn) -> None:
        """Handle keys that do not fit: a restarted coordinator may have new keys, and so may this worker. Raises
        RefusedError if the coordinator does not know the newest key."""
        unknown = refusal == "unknown key"
        if self._connector.coordinator_moved() or (unknown and self._connector.keys_changed()):
            self._reconnect()
        elif unknown:
            raise RefusedError(Rejected("forbidden", self._connector.not_authorized))
        else:
            self._patience.note(f"{self._connector.no_exchange}; waiting for the coordinator")

    # --- in ---

    def _take_arrivals(self, now_s: float) -> None:
        while not self._is_unknown and (event := self.socket.receive()) is not None:
            self._patience.heard(now_s - self._heard_s)
            self._heard_s = now_s
            if isinstance(event, Malformed):
                self._refuse_mismatch(event)
                continue
            if event.envelope.id and not self._joined:
                continue  # before Registered: perhaps from a coordinator that is dead; otherwise it comes again
            received = self._channel.take(event.envelope, now_s)
            for envelope in received.answers:
                self.socket.send(envelope)
            if received.message is not None:
                self._on_reply(received.message, now_s)

    def _refuse_mismatch(self, event: Malformed) -> None:
        if isinstance(event.error, ProtocolMismatchError):
            raise RefusedError(Rejected("protocol", f"{event.error}; install the same version of Remuda on both sides"))
        _log.warning("dropped what the coordinator's address sent: %s", event.error)

    def _on_reply(self, message: AnyMessage, now_s: float) -> None:
        match message:
            case Ack():
                return
            case BeatHeard():
                self._beat_interval_s = message.next_s
                return
            case Rejected(code="unknown") if self._registered is not None:
                self._is_unknown = not self._leaving or self._channel.unacknowledged > 0
                return
            case Rejected():
                if message.code == "dismissed" and self._pulse.lease:
                    self._send_stacks(message.reason, now_s)
                raise RefusedError(message)
            case Registered():
                self._registered, self._joined = message, True
                self._beat_interval_s, self._next_beat_s = message.beat_interval_s, now_s
                while self._waiting:
                    self.socket.send(self._channel.post(self._waiting.popleft(), now_s))
            case _:
                pass
        self._deliver(message)

    def _send_stacks(self, reason: str, now_s: float) -> None:
        """Send the stacks once, without repetition: the main thread hangs, and the process ends in any case."""
        error, where = shortened(f"dismissed: {reason}"), stacks()[-LONGEST_STACKS:]
        failed = WorkerFailed(self._pulse.lease, error, where, hung=True)
        with contextlib.suppress(CodecError):
            self.socket.send(self._channel.post(failed, now_s))

    # --- out ---

    def _beat_and_listen(self, now_s: float) -> None:
        silence_s = now_s - self._heard_s
        self._patience.silent(silence_s)
        if self._registered is None:
            if silence_s > STALE_S and self._connector.coordinator_moved():
                self._reconnect()  # the old connection file was of a dead coordinator
            return
        if now_s >= self._next_beat_s:
            self._next_beat_s = now_s + self._beat_interval_s
            if self._joined and not self._leaving:
                self.socket.send(self._channel.post(self._beat(), now_s))
            if silence_s > SILENT_BEATS * self._beat_interval_s and self._connector.coordinator_moved():
                self._reconnect()

    def _renew_if_silent(self, now_s: float) -> None:
        """Connect again after a long silence: something in between may keep a connection open and drop all data."""
        if now_s - max(self._heard_s, self._renewed_s) > max(sockets.SILENCE_S, SILENT_BEATS * self._beat_interval_s):
            self._renewed_s = self._next_beat_s = now_s  # the answer to a beat tells whether it does
            self.socket.renew()
            self._channel.hurry(now_s)

    def _beat(self) -> Beat:
        activity = self._pulse.activity
        with self._process.oneshot():
            cpu = self._process.cpu_times()
            return Beat(
                progress=self._pulse.progress,
                activity=shortened(activity.text),
                phase=activity.phase,
                lacks_bytes=activity.lacks_bytes,
                lease=self._pulse.lease,
                rss_bytes=self._process.memory_info().rss,
                cpu_s=cpu.user + cpu.system,
            )


def stacks() -> str:
    """The stacks of all threads, the main thread first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]: documented for this use, whatever its name
    found = sorted(frames.items(), key=lambda item: item[0] != main)
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame)).rstrip()}"
        for ident, frame in found
    )
