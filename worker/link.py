"""A worker's connection to its coordinator, as the worker's main thread sees it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

from remuda.wire.codec import check
from remuda.wire.connection_file import ConnectionFile
from remuda.wire.conversation import no_answer
from remuda.wire.envelope import Envelope
from remuda.wire.messages import AnyMessage, Bye, Drain, Drained, Phase, Register, Registered, WorkerMessage, shortened
from remuda.wire.patience import Patience
from remuda.worker.connector import Connector
from remuda.worker.network import Inbox, Network
from remuda.worker.session import IDLE, Activity, Pulse


class Link:
    """Sends and receives for the main thread, and beats for it while it is busy.

    Beats, repetitions and acknowledgements go on while the main thread steps an environment or updates a network: a
    background thread stands in. Used by one thread, but for `send` and `wake`.
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
        """`look_again` returns where the coordinator is now, if that can be told: one that was started again may
        listen elsewhere. `on_failure` is called once, by any thread, as soon as `receive` has an error to raise: so
        that a worker whose main thread no longer looks at its link can still be ended. `patience` says how long a
        silent coordinator is waited for."""
        self._connection = connection
        self._look_again = look_again
        self._register = register
        self._on_failure = on_failure or _do_nothing
        self._patience = patience or Patience()
        self._inbox: Inbox = deque()
        self._early: deque[AnyMessage] = deque()
        self._pulse = Pulse()
        self._network: Network | None = None
        self._failure: Exception | None = None

    def start(self, deadline_s: float, *, given_up: Callable[[], bool] = lambda: False) -> Registered:
        """Connect and register.

        Raises UnreachableError when no answer comes within `deadline_s`, or until `given_up` (asked after each `wake`),
        and RefusedError when it is no.
        """
        if self._network is not None:
            raise RuntimeError("the link was started already")
        connector = Connector(self._connection, self._register, self._look_again)
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
        """Have `message` delivered, exactly once unless it is a Beat. Its arrays must not be changed afterwards.

        Returns at once. Raises CodecError when the coordinator would refuse the message.
        """
        check(Envelope(1, 0, 1, message))
        self._running().post(message)

    def receive(self, timeout_s: float) -> AnyMessage | None:
        """The next message, or None when none came within `timeout_s` seconds or `wake` was called.

        Raises, now and at every later call: CoordinatorLostError when nothing was heard for as long as the coordinator
        is waited for, and RefusedError when it has sent Rejected.
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
        """Whether this lease is told to end by a message that `receive` has yet to return: for work that takes long.

        Heard of within a tenth of a second, though nobody receives."""
        arrived = [*self._early, *self._inbox]  # a copy: another thread adds to it
        return any(isinstance(message, Drain) and message.lease == lease for message in arrived)

    def _wait(self, network: Network, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        while not self._inbox and (left_s := end_s - time.monotonic()) > 0:
            network.wait(left_s)
            network.turn()

    def wake(self) -> None:
        """Let a waiting `receive` (or the next one) return None. For any thread, and for signal handlers."""
        self._inbox.append(None)
        if self._network is not None:
            self._network.wake()

    def progress(self, done: int) -> None:
        """Say how much work was done in this life, in all; it never falls. Beats carry it."""
        self._pulse.progress = max(self._pulse.progress, done)

    @property
    def progressed(self) -> int:
        """The work done so far in this life, as last said."""
        return self._pulse.progress

    def activity(self, phase: Phase, text: str) -> None:
        """Say what the worker is doing: the text is for people. Beats carry it."""
        self._pulse.activity = Activity(phase, text)

    @contextmanager
    def during(self, phase: Phase, text: str) -> Generator[None]:
        """Say that the worker does this within the block; afterwards it does again what it did before."""
        before, self._pulse.activity = self._pulse.activity, Activity(phase, text)
        try:
            yield
        finally:
            self._pulse.activity = before

    @property
    def doing(self) -> Activity:
        """What was last said of that."""
        return self._pulse.activity

    def begin_lease(self, lease: int) -> None:
        """Beats name this lease from now on."""
        self._pulse.lease = lease

    def forget_lease(self) -> None:
        """The coordinator says that the lease is over; beats name none from now on."""
        self._pulse.lease, self._pulse.activity = 0, IDLE

    def end_lease(self, lease: int) -> None:
        """Report the lease as Drained; beats name none from now on."""
        self.forget_lease()
        self.send(Drained(lease))

    @property
    def unacknowledged(self) -> int:
        """Messages sent that the coordinator has not acknowledged yet."""
        return self._running().unacknowledged

    def close(self, reason: str, deadline_s: float) -> bool:
        """Say Bye, wait until everything sent is acknowledged, and end the thread.

        False when something is not acknowledged: the deadline passed, the coordinator is silent, or the link had
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


def _do_nothing() -> None:
    pass
