"""One conversation per socket identity: received messages, answers, and messages to send again, or after a journal."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from remuda.coordinator.effects import Send
from remuda.wire.channel import Channel, Received
from remuda.wire.codec import Envelope
from remuda.wire.messages import AnyMessage

EXPIRES_S = 120.0
"""A silent peer that is not a worker (any more) is forgotten after this time."""
EXPIRY_INTERVAL_S = 5.0
"""Time between two searches for such peers."""
MOST_PEERS = 30_000
"""Maximum number of conversations, with workers included. Above this number, the coordinator forgets the peers with the
longest silence, except workers."""
MADE_ROOM = 1_000
"""Number forgotten at once, since finding them means looking at all."""
MOST_KEPT = 256
"""Messages kept for a peer outside the herd. A peer with more unconfirmed messages is forgotten."""
MOST_KEPT_OF_WORKERS = 4_096
MOST_KEPT_BYTES = 4 << 20
MOST_KEPT_OF_WORKERS_BYTES = 256 << 20


@dataclass
class _Connection:
    channel: Channel
    last_message_s: float
    name: str
    """Name of the key at its beginning."""


class Connections:
    """One Channel per peer; turns messages into envelopes."""

    def __init__(self, is_worker: Callable[[bytes], bool] = lambda peer: False) -> None:
        """`is_worker` is True for a worker of the herd, for which more is kept."""
        self._is_worker = is_worker
        self._unresponsive: set[bytes] = set()
        self._peers: dict[bytes, _Connection] = {}
        self._pending: dict[bytes, Channel] = {}
        """Peers with unconfirmed messages: few of many, as heartbeats need no confirmation."""
        self._expiry_due_s = 0.0

    def __len__(self) -> int:
        return len(self._peers)

    def is_taken(self, peer: bytes, name: str) -> bool:
        """True if this routing id belongs to the holder of a key with another name."""
        known = self._peers.get(peer)
        return known is not None and known.name != name

    def of(self, names: Collection[str]) -> list[bytes]:
        """Return the peers whose keys have these names."""
        return [peer for peer, known in self._peers.items() if known.name in names]

    def receive(self, peer: bytes, envelope: Envelope, now_s: float, name: str) -> tuple[Received, list[Send]] | None:
        """Receive an envelope from a peer with the key of this name. Returns the message, if new, and the envelopes to
        send back at once; None if this routing id belongs to the holder of a different key."""
        known = self._peers.get(peer)
        if known is None:
            if len(self._peers) >= MOST_PEERS:
                self._make_room()
            known = self._peers[peer] = _Connection(Channel(), now_s, name)
        elif known.name != name:
            return None
        known.last_message_s = now_s
        received = known.channel.receive(envelope, now_s)
        if known.channel.keeps_more_than(MOST_KEPT, MOST_KEPT_BYTES) and self._is_too_much(peer, known.channel):
            return Received(None, 0), []
        if not received.answers:
            return received, []
        return received, [Send(peer, answer, again=True) for answer in received.answers]

    def post(
        self, peer: bytes, message: AnyMessage, now_s: float, *, once: bool = False, after: str = ""
    ) -> list[Send]:
        """Send a message to a peer; an unknown or forgotten peer gets nothing. With `once` the message is not sent
        again. `after`: see Send."""
        known = self._peers.get(peer)
        if known is None:
            return []
        envelope = known.channel.post(message, now_s, once=once)
        if envelope.id:
            self._pending[peer] = known.channel
            if known.channel.keeps_more_than(MOST_KEPT, MOST_KEPT_BYTES) and self._is_too_much(peer, known.channel):
                return []
        return [Send(peer, envelope, after)]

    def answer(self, peer: bytes, message: AnyMessage, now_s: float, *, to: int, after: str = "") -> list[Send]:
        """Answer a message by its id. The answer to a message with id 0 is not resent, as the message is not. A peer
        forgotten in the meantime gets no answer."""
        if not to:
            return self.post(peer, message, now_s, once=True, after=after)
        known = self._peers.get(peer)
        answer = None if known is None else known.channel.answer(to, message)
        return [] if answer is None else [Send(peer, answer, after)]

    def acknowledge(self, peer: bytes, message_id: int, *, after: str = "") -> list[Send]:
        """Confirm a message that has no answer."""
        known = self._peers.get(peer)
        ack = None if known is None else known.channel.answer(message_id)
        return [] if ack is None else [Send(peer, ack, after)]

    def take_unresponsive(self) -> set[bytes]:
        """Return workers with too many unconfirmed messages, once."""
        unresponsive, self._unresponsive = self._unresponsive, set()
        return unresponsive

    def due(self, now_s: float) -> list[Send]:
        """Return the envelopes to send again now."""
        sends: list[Send] = []
        for peer, channel in list(self._pending.items()):
            if not channel.unacknowledged:
                del self._pending[peer]
            for envelope in channel.due(now_s):
                sends.append(Send(peer, envelope, again=True))
        return sends

    def forget(self, peer: bytes) -> None:
        """Forget a connection that will not be used again."""
        self._peers.pop(peer, None)
        self._pending.pop(peer, None)

    def _is_too_much(self, peer: bytes, channel: Channel) -> bool:
        """Handle a peer with more than MOST_KEPT unconfirmed messages. A peer outside the herd is forgotten and gets
        nothing more; a worker beyond its limits is listed in `unresponsive`."""
        if not self._is_worker(peer):
            self.forget(peer)
            return True
        if channel.keeps_more_than(MOST_KEPT_OF_WORKERS, MOST_KEPT_OF_WORKERS_BYTES):
            self._unresponsive.add(peer)
        return False

    def _make_room(self) -> None:
        strangers = [peer for peer in self._peers if not self._is_worker(peer)]
        for peer in sorted(strangers, key=lambda peer: self._peers[peer].last_message_s)[:MADE_ROOM]:
            self.forget(peer)

    def expire(self, now_s: float, *, keep: Callable[[bytes], bool]) -> None:
        """Forget peers after a long silence, except those to `keep`."""
        if now_s < self._expiry_due_s:
            return
        self._expiry_due_s = now_s + EXPIRY_INTERVAL_S
        gone = [
            peer for peer, known in self._peers.items() if now_s - known.last_message_s > EXPIRES_S and not keep(peer)
        ]
        for peer in gone:
            self.forget(peer)


class HeldReplies:
    """Sends messages at once, or as soon as the journal has the turn. For the coordinator's thread."""

    def __init__(self, send: Callable[[Send], None], waits_for: Callable[[str], int]) -> None:
        """`waits_for` returns the turn not yet in an experiment's journal; 0 if the journal is complete."""
        self._send = send
        self._waits_for = waits_for
        self._held: dict[str, deque[tuple[int, Send]]] = {}
        self._waiting: Counter[tuple[bytes, int, int]] = Counter()
        """The waiting messages; see `_name`."""

    def __len__(self) -> int:
        return self._waiting.total()

    def put(self, send: Send) -> None:
        """Send a message as soon as allowed. A repetition of a waiting message is dropped."""
        if send.again and _name(send) in self._waiting:
            return
        turn = self._waits_for(send.after) if send.after else 0
        if not turn:
            self._send(send)
            return
        self._held.setdefault(send.after, deque()).append((turn, send))
        self._waiting[_name(send)] += 1

    def journaled(self, experiment: str, number: int) -> None:
        """Send the messages held for the turns of this experiment up to this number: the turns are journaled now."""
        held = self._held.get(experiment)
        while held and held[0][0] <= number:
            send = self._take(held)
            self._send(send)
        if held is not None and not held:
            del self._held[experiment]

    def drop(self, experiment: str) -> None:
        """Drop the messages held for the journal of this experiment: no more is written."""
        held = self._held.pop(experiment, deque())
        while held:
            self._take(held)

    def _take(self, held: deque[tuple[int, Send]]) -> Send:
        _, send = held.popleft()
        self._waiting[_name(send)] -= 1
        if not self._waiting[_name(send)]:
            del self._waiting[_name(send)]
        return send


def _name(send: Send) -> tuple[bytes, int, int]:
    """Return the recipient, the message's number, and the number of the answered message: the same for repetitions."""
    return send.peer, send.envelope.id, send.envelope.reply_to
