"""A worker's link without a network: it notes what is sent and hands out what the test has put in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from remuda.tests.keys import connection_to
from remuda.wire.codec import Envelope, check
from remuda.wire.messages import PROTOCOL_VERSION, AnyMessage, Register, WorkerMessage
from remuda.worker.link import Link, OfLease

WORKER = "aaaaaaaa-0000-4000-8000-000000000001"
COORDINATOR = "cccccccc-0000-4000-8000-000000000001"

M = TypeVar("M")


class RecordingLink(Link):
    """`sent` is in order; `inbox` is what `receive` returns next, an exception being raised."""

    def __init__(self, inbox: Iterable[AnyMessage | Exception] = ()) -> None:
        super().__init__(
            connection_to("tcp://127.0.0.1:1", coordinator=COORDINATOR),
            Register(WORKER, 1, "collector", "here", 1, PROTOCOL_VERSION, "0"),
        )
        self.sent: list[WorkerMessage] = []
        self.inbox: deque[AnyMessage | Exception] = deque(inbox)
        self.when_idle: Callable[[], None] = lambda: None
        """Called when the worker waits and nothing is left in the inbox."""
        self.progress_said: list[int] = []
        self.beat_lease = 0
        """The lease that beats would name."""

    def send(self, message: WorkerMessage) -> None:
        check(Envelope(1, 0, 1, message))  # as the real one: what the coordinator would refuse is not sent
        self.sent.append(message)

    def receive(self, timeout_s: float) -> AnyMessage | None:
        if not self.inbox:
            if timeout_s > 0:
                self.when_idle()
            return None
        item = self.inbox.popleft()
        if isinstance(item, Exception):
            raise item
        return item

    def arrived(self, kind: type[OfLease], lease: int) -> OfLease | None:
        return next((item for item in reversed(self.inbox) if isinstance(item, kind) and item.lease == lease), None)

    def begin_lease(self, lease: int) -> None:
        super().begin_lease(lease)
        self.beat_lease = lease

    def end_lease(self, lease: int) -> None:
        super().end_lease(lease)
        self.beat_lease = 0

    @property
    def progressed(self) -> int:
        return self._pulse.progress

    def progress(self, amount: int) -> None:
        super().progress(amount)
        self.progress_said.append(self.progressed)

    def sent_of(self, kind: type[M]) -> list[M]:
        return [message for message in self.sent if isinstance(message, kind)]
