"""Delivery of events to the user's callbacks, which run in the learner of a policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from remuda.coordinator.effects import SendToLease, Step
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.training.commander.callbacks import CallbackBook, follow
from remuda.training.commander.commander import Commander
from remuda.training.commander.end import End
from remuda.training.effects import LogLine
from remuda.wire.messages import CallbacksDecided, CallCallbacks, ChangeSettings, Counters

CALLBACKS_LONGEST_S = 60.0
"""Time limit for callbacks at the end of a run, once the last checkpoint is saved and evaluated."""
CALLBACKS_STOPPED_S = 10.0
"""The same after a request to stop."""


@dataclass
class CallbackDispatch:
    """Sends events to the learner, which runs the callbacks; does nothing in a run without callbacks."""

    experiment: str
    book: CallbackBook
    leases: LeaseBook
    commander: Commander
    policy_index: int = 0
    """Among the policies of the run."""
    at_once: bool = False
    """Callbacks get every event at once, without pauses and time limits."""
    _last_sent: tuple[int, int] = field(default=(0, 0), init=False)
    """Lease and event number of the last message."""
    _deadline_s: float | None = field(default=None, init=False)
    """Deadline for the remaining events at the end."""

    def begin(self, counters: Counters) -> None:
        """Begin the run, or begin again, with the first ready learner. Ends the run at once if a
        callback had ended it."""
        self.book.started(counters, resumed=self.commander.last_record is not None)
        if self.book.stopped is not None:
            self.commander.end(self.book.stopped)

    def send_due(self, counters: Counters, now_s: float) -> list[Step]:
        """Send the next event to the learner, if both exist."""
        learner = self.leases.learner_of(self.policy_index)
        if not self.book.active or learner is None or not learner.ready:
            return []
        due = self.book.due(counters, math.inf if self.at_once else now_s)
        if due is None or self._last_sent == (learner.number, due[0]):
            return []
        self._last_sent = (learner.number, due[0])
        return [SendToLease(learner.number, CallCallbacks(learner.number, *due, counters.env_step))]

    def decided(self, message: CallbacksDecided, counters: Counters) -> list[Step]:
        """The callbacks have decided about an event."""
        outcome = self.book.decided(message.number, message.answer, counters)
        follow(outcome, self.commander)
        steps: Sequence[Step] = self._change(message.lease) if outcome.changed else ()
        return [*outcome.effects, *steps]

    def repeat(self, lease: Lease) -> list[Step]:
        """Send a learner again what an earlier coordinator may have lost; the event comes with `send_due`."""
        if lease.role != "learner" or lease.draining or not lease.ready:
            return []
        self._last_sent = (0, 0)
        return self._change(lease.number) if self.book.changes else []

    def concluded(self, end: End, counters: Counters, now_s: float) -> tuple[bool, list[Step]]:
        """Return True once callbacks have received the end or their deadline has passed, and the messages to send."""
        book = self.book
        if not book.active:
            return True, []
        if self._deadline_s is None:
            longest_s = CALLBACKS_STOPPED_S if end.on_request else CALLBACKS_LONGEST_S
            self._deadline_s = math.inf if self.at_once else now_s + longest_s
        if book.idle and not book.closed:
            book.ended(end, counters)
        if book.idle or self.leases.learner_of(self.policy_index) is None or now_s > self._deadline_s:
            return True, []
        return False, self.send_due(counters, now_s)

    def given_up(self) -> list[Step]:
        """Return a log line about events that callbacks did not answer before the deadline."""
        if not self.book.active or self.book.idle:
            return []
        text = "the callbacks have not answered: they were not told of the end of the run, or what they decide is lost"
        return [LogLine(self.experiment, text, "warning")]

    def _change(self, lease: int) -> list[Step]:
        return [SendToLease(lease, ChangeSettings(lease, self.book.all_changes))]
