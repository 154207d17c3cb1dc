"""Has the learner tell the user's callbacks of events, one at a time, and follows what they decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from remuda.coordinator.effects import SendToLease, Step
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.training.commander.callbacks import CallbackBook, follow
from remuda.training.commander.commander import Commander
from remuda.training.commander.end import End
from remuda.training.effects import LogLine
from remuda.wire.messages import CallbacksDecided, CallCallbacks, ChangeSettings, Counters, SettingValue

LONGEST_S = 60.0
"""How long the end of a run waits for callbacks, once the last checkpoint is saved and evaluated."""
STOPPED_S = 10.0
"""The same where somebody has asked for the end."""


@dataclass(kw_only=True)
class CallbackDispatch:
    """Tells the learner; none of it where there are no callbacks."""

    experiment: str
    book: CallbackBook
    leases: LeaseBook
    commander: Commander
    _told: tuple[int, int] = field(default=(0, 0), init=False)
    """The lease that was told last, and of which event."""
    _deadline_s: float | None = field(default=None, init=False)
    """For what is left to be told at the end."""

    @property
    def changes(self) -> dict[str, list[tuple[int, SettingValue]]]:
        """As messages have them."""
        return {setting: list(values) for setting, values in self.book.changes.items()}

    def begin(self, counters: Counters) -> None:
        """The first learner is ready: the run begins, or begins again. It ends at once if a callback had ended it."""
        self.book.started(counters, resumed=self.commander.last_record is not None)
        if self.book.stopped is not None:
            self.commander.end(self.book.stopped)

    def tell(self, counters: Counters, now_s: float) -> list[Step]:
        """Have the next event told, if there is one, and somebody to tell it."""
        learner = self.leases.learner
        if not self.book.active or learner is None or not learner.ready:
            return []
        due = self.book.due(counters, now_s)
        if due is None or self._told == (learner.number, due[0]):
            return []
        self._told = (learner.number, due[0])
        return [SendToLease(learner.number, CallCallbacks(learner.number, *due, counters.env_step))]

    def decided(self, message: CallbacksDecided, counters: Counters) -> list[Step]:
        """The callbacks have decided about an event."""
        outcome = self.book.decided(message.number, message.answer, counters)
        follow(outcome, self.commander)
        steps: Sequence[Step] = self._change(message.lease) if outcome.changed else ()
        return [*outcome.effects, *steps]

    def repeat(self, lease: Lease) -> list[Step]:
        """Say again to a learner what may have been lost with an earlier coordinator; the event comes with `tell`."""
        if lease.role != "learner":
            return []
        self._told = (0, 0)
        return self._change(lease.number) if self.book.changes else []

    def disbelief(self, message: CallbacksDecided) -> str | None:
        """Why this cannot be true; None if it can."""
        if self.book.was_told(message.number):
            return None
        return f"its callbacks have decided about event {message.number}, of which nobody was told"

    def concluded(self, end: End, counters: Counters, now_s: float) -> tuple[bool, list[Step]]:
        """Whether the end need not wait for callbacks any more: all are told of it, or they are given up."""
        book = self.book
        if not book.active:
            return True, []
        if self._deadline_s is None:
            self._deadline_s = now_s + (STOPPED_S if end.on_request else LONGEST_S)
        if book.idle and not book.closed:
            book.ended(end, counters)
        if book.idle or self.leases.learner is None or now_s > self._deadline_s:
            return True, []
        return False, self.tell(counters, now_s)

    def given_up(self) -> list[Step]:
        """A line about what callbacks were not told of, once the end has waited for them."""
        if not self.book.active or self.book.idle:
            return []
        text = "the callbacks have not answered: they were not told of the end of the run, or what they decide is lost"
        return [LogLine(self.experiment, text, "warning")]

    def _change(self, lease: int) -> list[Step]:
        return [SendToLease(lease, ChangeSettings(lease, self.changes))]
