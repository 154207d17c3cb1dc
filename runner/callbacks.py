"""Calls the user's callbacks in a serial run, where they are told at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remuda.config.current import Changes
from remuda.learner.callbacks import CallbackHost
from remuda.training.commander.callbacks import CallbackBook, follow
from remuda.training.commander.commander import Commander, Decision
from remuda.training.commander.end import End
from remuda.training.commander.outcomes import Outcome
from remuda.training.effects import Emit, LogLine
from remuda.wire.messages import Counters

_NOTHING = Outcome()


@dataclass(frozen=True, kw_only=True)
class SerialCallbacks:
    """Those of one policy."""

    book: CallbackBook
    host: CallbackHost
    commander: Commander
    counters: Callable[[], Counters]
    change: Callable[[Changes], None]
    """Called with all changes of settings, once there is another one."""

    def begin(self, *, resumed: bool) -> Sequence[Decision]:
        """The run begins, or begins again. It ends at once if a callback had ended it."""
        self.change(self.book.changes)
        self.book.started(self.counters(), resumed=resumed)
        return [] if self.book.stopped is None else self.commander.end(self.book.stopped)

    def tell(self) -> Outcome:
        """Tell the callbacks of all that has happened; returns what follows."""
        if self.book.idle or not self.book.active:
            return _NOTHING
        effects: list[Emit | LogLine] = []
        decisions: list[Decision] = []
        while (due := self.book.due(self.counters())) is not None:
            number, event = due
            counters = self.counters()
            answer = self.host.decide(event, counters.env_step)
            outcome = self.book.decided(number, answer, counters)
            effects += outcome.effects
            decisions += follow(outcome, self.commander)
            if outcome.changed:
                self.host.change(self.book.changes)
                self.change(self.book.changes)
        return Outcome(effects, decisions)

    def conclude(self, end: End) -> Outcome:
        """Tell them of the end; returns what is left to be recorded."""
        self.book.ended(end, self.counters())
        return self.tell()
