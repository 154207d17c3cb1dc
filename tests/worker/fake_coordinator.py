"""A coordinator of a few lines: a ROUTER on a thread of its own, whose behaviour each test sets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from remuda.tests.keys import COORDINATOR, connection_to, router
from remuda.tests.patience import HANG_S
from remuda.tests.worker.serving import Serving
from remuda.wire.channel import Channel
from remuda.wire.codec import CodecError, Envelope
from remuda.wire.messages import AnyMessage, Beat, BeatHeard, Register, Registered
from remuda.wire.sockets import Arrival

UUID = COORDINATOR

Reply = AnyMessage | None


class FakeCoordinator(Serving):
    """Answers Register and Beat, acknowledges the rest and notes it. A context manager."""

    def __init__(self, *, address: str = "tcp://127.0.0.1:0") -> None:
        super().__init__()
        self.router = router(address)
        self.connection = connection_to(self.router.address)
        self.registered = Registered(UUID, 0.05)
        self.heard: list[AnyMessage] = []
        self.peers: list[bytes] = []
        self._heard_from: dict[bytes, list[AnyMessage]] = {}
        self.malformed: list[CodecError] = []
        self.answer: Callable[[AnyMessage], Reply] = self._usual_answer
        self.lose: Callable[[Envelope], bool] = lambda envelope: False
        """Whether an envelope to the worker is lost on its way."""
        self.silent = False
        self.to_send: list[AnyMessage] = []
        self._changed = threading.Condition()
        self._channels: dict[bytes, Channel] = {}

    @property
    def unacknowledged(self) -> int:
        """Messages sent that no worker has acknowledged yet."""
        return sum(channel.unacknowledged for channel in self._channels.values())

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; it is looked at whenever something has come in."""
        with self._changed:
            assert self._changed.wait_for(condition, HANG_S), f"never came; heard: {self.heard}"

    def heard_of(self, kind: type[AnyMessage]) -> list[AnyMessage]:
        return [message for message in self.heard if isinstance(message, kind)]

    @property
    def heard_from_newest(self) -> list[AnyMessage]:
        """Of the connection that came last. What one from before has sent may come late."""
        return self._heard_from[self.peers[-1]]

    def _usual_answer(self, message: AnyMessage) -> Reply:
        match message:
            case Register():
                return self.registered
            case Beat():
                return BeatHeard(self.registered.beat_interval_s)
            case _:
                return None

    def _serve(self) -> None:
        while not self._stop:
            self.router.wait(0.01)
            while events := self.router.receive_up_to(100):
                for event in events:
                    if isinstance(event, Arrival):
                        self._handle(event)
                    else:
                        self.malformed.append(event.error)
            self._send_unasked()
            with self._changed:
                self._changed.notify_all()

    def _let_go(self) -> None:
        self.router.close()

    def _handle(self, event: Arrival) -> None:
        if self.silent:
            return
        now_s = time.monotonic()
        if event.peer not in self._channels:
            # a short longest pause: what is lost ten times in a row, which chance does bring, still comes in a second
            self._channels[event.peer] = Channel(resend_s=0.05, resend_max_s=0.1)
            self.peers.append(event.peer)
        channel = self._channels[event.peer]
        received = channel.receive(event.envelope, now_s)
        out = [*received.answers]
        if received.message is not None:
            self.heard.append(received.message)
            self._heard_from.setdefault(event.peer, []).append(received.message)
            answer = self.answer(received.message)
            if answer is not None:
                out.append(channel.answer(received.id, answer) or channel.post(answer, now_s))
        ack = channel.answer(received.id)
        self._send(event.peer, [*out, ack] if ack else out)

    def _send_unasked(self) -> None:
        now_s = time.monotonic()
        for peer, channel in self._channels.items():
            messages = self.to_send[:]
            del self.to_send[: len(messages)]  # the list stays the same: a test may be about to add to it
            self._send(peer, [channel.post(message, now_s) for message in messages])
            self._send(peer, channel.due(now_s))

    def _send(self, peer: bytes, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            if not self.silent and not self.lose(envelope):
                self.router.send(peer, envelope)
