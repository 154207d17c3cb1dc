"""A worker's connection to its coordinator, for the worker's main thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol, TypeVar

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
from remuda.worker.network import Inbox, Network
from remuda.worker.session import IDLE, Activity, Connector, Pulse

OfLease = TypeVar("OfLease", Drain, InferenceServers, Registered)


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

    The layers: `Link` is for the main thread, `Network` (network.py) shares one session between two threads, and
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
        self._network: Network | None = None
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
        self._network = Network(connector, self._register, self._inbox, self._pulse, self._on_failure, self._patience)
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

    def _wait(self, network: Network, timeout_s: float) -> None:
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

    def _running(self) -> Network:
        if self._network is None:
            raise RuntimeError("the link is not started")
        return self._network
