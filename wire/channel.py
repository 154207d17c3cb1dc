"""One end of a lossy, reordering connection: delivers every message once and in order."""

from __future__ import annotations

from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from remuda.wire.codec import Envelope
from remuda.wire.messages import (
    Ack,
    AnyMessage,
    Assign,
    Batches,
    Beat,
    BeatHeard,
    LogRequest,
    LogText,
    PolicyAvailable,
    Rejected,
    Status,
    StatusRequest,
)

NOT_RESENT = (Ack, Beat, BeatHeard, PolicyAvailable)
"""Messages that may be lost: the next message of the same kind has the same content or newer."""


ASKED_AGAIN = (StatusRequest, LogRequest)
"""Read-only requests. Their answers may be large and are not kept: a repeated request is answered again."""
_NOT_KEPT = (Ack, Status, LogText)
_HEAVY = (Batches, Assign, Rejected)
"""Messages of very different sizes."""
_ACK = Ack()
_PLAIN_BYTES = 500
_CHUNK_BYTES = 1_000


def weight_bytes(message: AnyMessage) -> int:
    """About how much memory a kept message takes."""
    if not isinstance(message, _HEAVY):
        return _PLAIN_BYTES
    match message:
        case Batches():
            arrays = message.rows.nbytes + message.weights.nbytes
            return _PLAIN_BYTES + arrays + _CHUNK_BYTES * len(message.new_chunks)
        case Assign():
            return _PLAIN_BYTES + len(message.config_json) + _CHUNK_BYTES * len(message.replay)
        case Rejected():
            return _PLAIN_BYTES + len(message.reason)


class Received(Struct, frozen=True):
    """Result of an envelope: the message if it is new (else None), and the envelopes to send back at once."""

    message: AnyMessage | None
    id: int
    """0 if no answer is needed; else pass the id to `answer`."""
    answers: tuple[Envelope, ...] = ()


_NOTHING = Received(None, 0)


class Channel:
    """Numbers, repeats and de-duplicates the messages of one end. Opens no socket and reads no clock.

    Reliable messages are sent again until the other end acknowledges them. All unacknowledged messages are repeated
    together, after pauses that double until the oldest message is acknowledged. An answer with `reply_to` acknowledges
    its request, and is repeated with the request. Answer every received id exactly once, by `answer`, now or later:
    until then repetitions of the message are ignored. To answer after an acknowledgement, post a separate message.

    Reliable messages are taken in order: a message that overtakes another is treated as lost, and is sent again. A
    connection keeps the order, so this matters only after a broken connection. Answers may overtake messages.

    Both ends begin with a fresh Channel. `window` limits the memory for messages of the other end: a message this far
    ahead of the oldest unacknowledged message is also treated as lost.
    """

    def __init__(self, *, resend_s: float = 1.0, resend_max_s: float = 8.0, window: int = 1_024) -> None:
        self._resend_s = resend_s
        self._resend_max_s = resend_max_s
        self._window = window
        self._pause_s = resend_s
        self._due_s = 0.0  # meaningful while something is pending
        self._last_id = 0
        self._pending: dict[int, Envelope] = {}  # not acknowledged; in order of id
        self._floor = 1
        """Id of the oldest unacknowledged message, or of the next message if all are acknowledged."""
        self._next_id = 1  # of the other end
        self._peer_floor = 1
        self._unanswered: set[int] = set()
        self._replies: dict[int, Envelope] = {}  # answers that may have to be repeated, by the id they answer
        self.kept_bytes = 0
        """Approximate memory of all unconfirmed messages."""

    def post(self, message: AnyMessage, now_s: float, *, once: bool = False) -> Envelope:
        """Return the envelope to send now; unless it is NOT_RESENT, `due` returns it until acknowledged.

        `once`: do not resend, for frequent messages such as the answer to each message of an unknown worker. Arrays in
        the message must not be changed afterwards.
        """
        if once or isinstance(message, NOT_RESENT):
            return Envelope(0, 0, self._floor, message)
        self._last_id += 1
        envelope = Envelope(self._last_id, 0, self._floor, message)
        if not self._pending:
            self._start_pause(now_s, self._resend_s)
        self._pending[envelope.id] = envelope
        self.kept_bytes += weight_bytes(message)
        return envelope

    def receive(self, envelope: Envelope, now_s: float) -> Received:
        """Take an arrived envelope. A repeated message gives None and the former answer, if any."""
        self._raise_peer_floor(envelope.floor)
        if envelope.reply_to:
            first_answer = self._note_answer(envelope.reply_to, now_s)
            if not first_answer or isinstance(envelope.message, Ack):
                return _NOTHING
        elif isinstance(envelope.message, Ack):
            return _NOTHING
        if envelope.id == 0:
            return Received(envelope.message, 0)
        if envelope.id < self._next_id:
            return self._receive_again(envelope)
        if envelope.id > self._next_id or envelope.id >= self._peer_floor + self._window:
            return _NOTHING
        self._next_id += 1
        self._unanswered.add(envelope.id)
        return Received(envelope.message, envelope.id)

    def take(self, envelope: Envelope, now_s: float) -> Received:
        """As `receive`, for an end without `reply_to` answers: acknowledges messages at once."""
        received = self.receive(envelope, now_s)
        ack = self.answer(received.id)
        return received if ack is None else Received(received.message, 0, (ack,))

    def _note_answer(self, id: int, now_s: float) -> bool:
        was_oldest = id == self._floor
        answered = self._pending.pop(id, None)
        if answered is None:
            return False
        self.kept_bytes -= weight_bytes(answered.message)
        if was_oldest:
            self._floor = next(iter(self._pending), self._last_id + 1)
            self._start_pause(now_s, self._resend_s)
        return True

    def _receive_again(self, envelope: Envelope) -> Received:
        """Repeat the answer to a repeated message, if answered already."""
        id, reply = envelope.id, self._replies.get(envelope.id)
        if id in self._unanswered:
            return _NOTHING
        if reply is None and isinstance(envelope.message, ASKED_AGAIN):
            if id < self._peer_floor:
                return _NOTHING
            self._unanswered.add(id)
            return Received(envelope.message, id)
        answer = Envelope(0, id, self._floor, _ACK) if reply is None else replace(reply, floor=self._floor)
        return Received(None, 0, (answer,))

    def answer(self, id: int, message: AnyMessage = _ACK) -> Envelope | None:
        """Return the envelope with the answer to a received message, or with an Ack; None if the message needs no
        answer (any more)."""
        if id not in self._unanswered:
            return None
        self._unanswered.discard(id)
        envelope = Envelope(0, id, self._floor, message)
        if not isinstance(message, _NOT_KEPT) and id >= self._peer_floor:
            self._replies[id] = envelope
            self.kept_bytes += weight_bytes(message)
        return envelope

    def due(self, now_s: float) -> list[Envelope]:
        """Envelopes to send again now, oldest first."""
        if not self._pending or now_s < self._due_s:
            return []
        self._start_pause(now_s, min(2 * self._pause_s, self._resend_max_s))
        welcome = takewhile(lambda envelope: envelope.id < self._floor + self._window, self._pending.values())
        return [replace(envelope, floor=self._floor) for envelope in welcome]

    def hurry(self, now_s: float) -> None:
        """Let `due` return everything now, and restart the pauses, since the connection has broken."""
        self._start_pause(now_s, self._resend_s / 2)
        self._due_s = now_s

    def pending(self) -> list[AnyMessage]:
        """Reliable messages without an acknowledgement, in order."""
        return [envelope.message for envelope in self._pending.values()]

    def next_due_s(self) -> float | None:
        """Return the time when `due` returns something; None if everything is acknowledged."""
        return self._due_s if self._pending else None

    def keeps_more_than(self, messages: int, kept_bytes: int) -> bool:
        """True if more than `messages` messages, or more than about `kept_bytes` bytes, are kept."""
        return (
            self.kept_bytes > kept_bytes or len(self._pending) + len(self._replies) + len(self._unanswered) > messages
        )

    @property
    def unacknowledged(self) -> int:
        """Number of reliable messages without an acknowledgement."""
        return len(self._pending)

    def _start_pause(self, now_s: float, pause_s: float) -> None:
        self._pause_s = pause_s
        self._due_s = now_s + pause_s

    def _raise_peer_floor(self, floor: int) -> None:
        before = self._peer_floor
        if floor <= before:
            return
        self._peer_floor = floor
        self._next_id = max(self._next_id, floor)  # if the other end is older than this one
        for id in range(before, min(floor, before + self._window)):  # none further ahead was accepted
            confirmed = self._replies.pop(id, None)
            if confirmed is not None:
                self.kept_bytes -= weight_bytes(confirmed.message)
