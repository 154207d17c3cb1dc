"""Conversations with everybody, by socket identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from remuda.coordinator.effects import Send
from remuda.wire.channel import Channel, Envelope, Received
from remuda.wire.messages import AnyMessage

EXPIRES_S = 120.0
"""A peer that is no worker (any more) and has been silent for so long is forgotten."""


@dataclass
class _Peer:
    channel: Channel
    heard_s: float


class Peers:
    """One Channel per peer; turns messages into envelopes on their way."""

    def __init__(self) -> None:
        self._peers: dict[bytes, _Peer] = {}

    def __contains__(self, peer: bytes) -> bool:
        return peer in self._peers

    def receive(self, peer: bytes, envelope: Envelope, now_s: float) -> tuple[Received, list[Send]]:
        """Take an envelope in: the message, if it is new, and what must be sent back at once."""
        known = self._peers.setdefault(peer, _Peer(Channel(), now_s))
        known.heard_s = now_s
        received = known.channel.receive(envelope, now_s)
        return received, [Send(peer, answer) for answer in received.answers]

    def post(self, peer: bytes, message: AnyMessage, now_s: float) -> list[Send]:
        """Say something to a peer; to one that is not known (any more) nothing is said."""
        known = self._peers.get(peer)
        return [] if known is None else [Send(peer, known.channel.post(message, now_s))]

    def answer(self, peer: bytes, message: AnyMessage, now_s: float, *, to: int) -> list[Send]:
        """Answer a message by its id; the answer to one that is never resent (id 0) is not resent either."""
        known = self._peers.get(peer)
        if known is None:
            return []
        return [Send(peer, known.channel.post(message, now_s, reply_to=to, once=to == 0))]

    def acknowledge(self, peer: bytes, message_id: int) -> list[Send]:
        """Confirm a message that has no answer."""
        ack = self._peers[peer].channel.acknowledge(message_id)
        return [] if ack is None else [Send(peer, ack)]

    def due(self, now_s: float) -> list[Send]:
        """What has to be sent again."""
        return [Send(peer, envelope) for peer, known in self._peers.items() for envelope in known.channel.due(now_s)]

    def forget(self, peer: bytes) -> None:
        """This connection will not be used again."""
        self._peers.pop(peer, None)

    def expire(self, now_s: float, *, keep: Callable[[bytes], bool]) -> None:
        """Forget those that have long been silent, but none that is to be kept."""
        gone = [peer for peer, known in self._peers.items() if now_s - known.heard_s > EXPIRES_S and not keep(peer)]
        for peer in gone:
            del self._peers[peer]
