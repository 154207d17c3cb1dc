"""Holds messages back until the run's journal has their contents."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from remuda.coordinator.effects import Send


class HeldReplies:
    """Sends messages at once, or as soon as the journal has the turn. For the coordinator's thread."""

    def __init__(self, send: Callable[[Send], None], waits_for: Callable[[str], int]) -> None:
        """`waits_for` returns the turn that an experiment's journal does not have yet; 0 if it has all."""
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
        """Send the messages that waited for the turns of this experiment up to this number, which are journaled now."""
        held = self._held.get(experiment)
        while held and held[0][0] <= number:
            send = self._take(held)
            self._send(send)
        if held is not None and not held:
            del self._held[experiment]

    def drop(self, experiment: str) -> None:
        """Drop the messages that wait for this experiment's journal, which is not written any more."""
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
