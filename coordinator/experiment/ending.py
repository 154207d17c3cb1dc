"""The end of a run, in stages of bounded time, and the delivery of events to the user's callbacks.

Draining: the collectors hand in all data and end. After the last environment step, a learner behind
buffer.samples_per_insert, or with remaining batches of segments, catches up; otherwise the learner stops at once.
Settling: the last checkpoint is saved, and evaluated if needed; a dead evaluator is replaced. Then callbacks receive
the end. Releasing: all remaining workers end their work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from remuda.coordinator.effects import SendToLease, Step
from remuda.coordinator.experiment.evaluation import EvaluationDispatch
from remuda.coordinator.experiment.workers import ExperimentWorkers
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.training.commander.callbacks import CallbackBook, follow
from remuda.training.commander.commander import Commander
from remuda.training.commander.end import End, evaluation_is_too_late, time_is_over
from remuda.training.effects import LogLine
from remuda.training.snapshot import Stage
from remuda.wire.messages import ROLES, CallbacksDecided, CallCallbacks, ChangeSettings, Counters

CALLBACKS_LONGEST_S = 60.0
"""Time limit for callbacks at the end of a run, once the last checkpoint is saved and evaluated."""
CALLBACKS_STOPPED_S = 10.0
"""The same after a request to stop."""
STAGE_LONGEST_S: dict[Stage, float] = {"draining": 60.0, "settling": 600.0, "releasing": 60.0}
"""The time limit of a stage. Settling has this time once the last checkpoint is saved; saving has the time of the
config in addition."""
STOPPED_EVALUATION_S = 10.0
"""Time limit of the last evaluation after a request to stop."""
REPLACEMENT_S = 30.0
"""Time limit for a replacement of the last evaluator, or of a learner that catches up or saves: a nanny restarts a
worker within this time."""


@dataclass(kw_only=True)
class CallbackDispatch:
    """Sends events to the learner, which runs the callbacks; does nothing in a run without callbacks."""

    experiment: str
    book: CallbackBook
    leases: LeaseBook
    commander: Commander
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
        learner = self.leases.learner
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
        if book.idle or self.leases.learner is None or now_s > self._deadline_s:
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


@dataclass(kw_only=True)
class ExperimentShutdown:
    """Keeps the stage of the end; `working` while nothing has ended the run."""

    experiment: str
    leases: LeaseBook
    workers: ExperimentWorkers
    dispatch: EvaluationDispatch
    callbacks: CallbackDispatch
    save_s: float
    """Time limit for saving a checkpoint."""
    bounded: bool = True
    """Stages have a time limit. A serial run never waits."""
    stage: Stage = "working"
    nobody_comes: bool = False
    """The coordinator itself ends: no worker joins the herd any more, and present workers may be leaving."""
    together: Sequence[ExperimentShutdown] = ()
    """The shutdowns of all policies of the run: shared workers end once all policies are done."""
    _done: bool = field(default=False, init=False)
    """Nothing is waited for in this stage any more."""
    _deadline_s: float = field(default=0.0, init=False)
    _saved: bool = field(default=False, init=False)
    """The last checkpoint is saved; the following steps have a new deadline."""
    _awaited: str | None = field(default=None, init=False)
    """The awaited evaluation at the last check, and the start of the wait."""
    _awaited_since_s: float = field(default=0.0, init=False)
    _alone_since_s: float | None = field(default=None, init=False)
    """Time since the awaited evaluator or learner is missing; None while both are present."""

    @property
    def complete(self) -> bool:
        """True once all workers have ended their work."""
        return all(each.stage == "releasing" and not len(each.leases) for each in self.together or (self,))

    @property
    def lacks_evaluator(self) -> bool:
        """True if the last checkpoint must be played and no evaluator is present."""
        return self.stage == "settling" and self.dispatch.lacks_evaluator

    @property
    def awaits_evaluation(self) -> str | None:
        """File name of the checkpoint with the only evaluation that keeps the run from ending; None otherwise."""
        commander = self.dispatch.commander
        if self.stage != "settling" or not commander.final_saved or commander.settled or commander.evaluating is None:
            return None
        return commander.evaluating.file

    def check_bounds(self, counters: Counters, now_s: float) -> None:
        """End a run without a ready learner once a bound of `stop` has passed. If a learner would still catch up, the
        run waits for the learner that is preparing, or a little for another."""
        commander = self.dispatch.commander
        end = commander.reached(counters) if commander.ending is None else None
        if end is not None and not (end.catches_up and self._awaits_learner(counters, now_s)):
            commander.end(end)

    def _awaits_learner(self, counters: Counters, now_s: float) -> bool:
        in_time = not time_is_over(self.dispatch.commander.config.stop, counters)
        return in_time and not self._is_alone(now_s, lacks=self.leases.learner is None)

    def begin(self, end: End, now_s: float) -> list[Step]:
        """Begin the end: something has ended the run."""
        self.enter("draining", now_s)
        said: list[Step] = [*self.dispatch.outcomes.run_ends(end)]
        if not end.catches_up or not self.workers.flow.is_open:
            said += self._stop_learning()
        elif owed := self.workers.flow.updates_owed():
            said.append(LogLine(self.experiment, f"the learner catches up: {self.workers.flow.owes} owed: {owed}"))
        return [*said, *self.workers.drain("collector", end.reason), *self.workers.drain("reanalyzer", end.reason)]

    def hurry(self) -> list[Step]:
        """End sooner, without letting the learner catch up."""
        return self._stop_learning() if self.stage == "draining" and self.workers.flow.is_open else []

    def advance(self, counters: Counters, now_s: float) -> list[Step]:
        """Continue through every completed stage."""
        steps: list[Step] = []
        if self.stage == "draining" and not any(each.catches_up(counters, now_s) for each in self.together or (self,)):
            if self.workers.flow.is_open:
                steps += self._stop_learning()
            if not self.leases.count("collector") or self._is_late(now_s):
                steps += self._begin_settling(counters, now_s)
        if self.stage == "settling":
            steps += self._use_newest_checkpoint(counters, now_s)
            if self.dispatch.commander.final_saved and not self._saved:
                self._saved, self._deadline_s = True, min(self._deadline_s, now_s + self._longest_s("settling"))
            steps += self._log_awaited(now_s)
            given_up = self._is_late(now_s) or self._time_is_over(counters, now_s)
            given_up = given_up or self._is_alone(now_s, lacks=self.lacks_evaluator)
            self._done = False
            if self.dispatch.commander.settled or given_up:
                steps += self._conclude_callbacks(counters, now_s)
            if all(each.is_settled for each in self.together or (self,)):
                steps += self._release(counters, now_s)
        if self.stage == "releasing" and self._is_late(now_s):
            for role in ROLES:
                steps += self.workers.dismiss(role)
        return steps

    def enter(self, stage: Stage, now_s: float, left_s: float | None = None) -> None:
        """Begin a stage, with the full time limit or the time `left_s` from before a restart of the coordinator."""
        saving_s = self.save_s if stage == "settling" else 0.0
        whole_s = self._longest_s(stage) + saving_s
        self.stage, self._deadline_s = stage, now_s + (whole_s if left_s is None else left_s)
        self._saved = self._done = False
        self._alone_since_s = None

    def _longest_s(self, stage: Stage) -> float:
        return STAGE_LONGEST_S.get(stage, 0.0) if self.bounded else math.inf

    def left_s(self, now_s: float) -> float | None:
        """Time left in this stage; None before the end begins."""
        return None if self.stage == "working" or not self.bounded else self._deadline_s - now_s

    @property
    def is_settled(self) -> bool:
        """True once saving and evaluation are done or given up."""
        return self.stage == "releasing" or (self.stage == "settling" and self._done)

    def catches_up(self, counters: Counters, now_s: float) -> bool:
        """True while the learner has updates to catch up with; the last chunks for them may still arrive."""
        commander, flow = self.dispatch.commander, self.workers.flow
        end = commander.ending
        if not flow.is_open or end is None or not end.catches_up or self._is_late(now_s):
            return False
        in_time = not time_is_over(commander.config.stop, counters)
        return in_time and flow.learns_on(more_to_come=self.leases.count("collector") > 0)

    def _stop_learning(self) -> list[Step]:
        """Stop the learner: no more batches, and no further update."""
        self.workers.flow.close()
        return self.workers.stop_training()

    def _is_late(self, now_s: float) -> bool:
        return now_s > self._deadline_s

    def _time_is_over(self, counters: Counters, now_s: float) -> bool:
        """True if the time for the last evaluation is over. stop.max_wall_s and a request to stop limit it."""
        commander, awaited = self.dispatch.commander, self.awaits_evaluation
        waited_s = now_s - self._awaited_since_s
        if awaited is None or awaited != self._awaited or commander.ending is None:
            return False
        if commander.ending.on_request and waited_s >= STOPPED_EVALUATION_S:
            return True
        return evaluation_is_too_late(commander.config.stop, wall_s=counters.wall_s, waited_s=waited_s)

    def _conclude_callbacks(self, counters: Counters, now_s: float) -> list[Step]:
        """Send the end to the callbacks, the last action of this stage."""
        end = self.dispatch.commander.ending
        assert end is not None, "the run ends"
        self._done, steps = self.callbacks.concluded(end, counters, now_s)
        return steps

    def _log_awaited(self, now_s: float) -> list[Step]:
        """Log once for every awaited evaluation."""
        awaited = self.awaits_evaluation
        if awaited is None or awaited == self._awaited:
            return []
        self._awaited, self._awaited_since_s = awaited, now_s
        return [LogLine(self.experiment, f"waits for the evaluation of {awaited}")]

    def _use_newest_checkpoint(self, counters: Counters, now_s: float) -> list[Step]:
        """Use the newest checkpoint as the last if no learner is present: a new learner would begin at this checkpoint,
        and waiting gains nothing. Wait briefly for a learner in preparation, which saves the last counters."""
        commander, learner = self.dispatch.commander, self.leases.learner
        if commander.final_saved or (learner is not None and learner.ready):
            return []
        began_s = self._deadline_s - STAGE_LONGEST_S["settling"] - self.save_s
        in_time = now_s < began_s + REPLACEMENT_S and not time_is_over(commander.config.stop, counters)
        if learner is not None and in_time and not self.nobody_comes:
            return []
        return self.dispatch.use_newest_checkpoint(counters, now_s)

    def _is_alone(self, now_s: float, *, lacks: bool) -> bool:
        """True if a worker that the run `lacks` has been missing for too long to wait for."""
        if not lacks:
            self._alone_since_s = None
            return False
        if self._alone_since_s is None:
            self._alone_since_s = now_s
        return self.nobody_comes or now_s >= self._alone_since_s + REPLACEMENT_S

    def _begin_settling(self, counters: Counters, now_s: float) -> list[Step]:
        dismissed = self.workers.dismiss("collector")
        self.enter("settling", now_s)
        decisions = self.dispatch.commander.save_final()
        return dismissed + self.dispatch.carry_out(decisions, counters, now_s)

    def _release(self, counters: Counters, now_s: float) -> list[Step]:
        steps: list[Step] = []
        commander = self.dispatch.commander
        if self._time_is_over(counters, now_s):
            end = commander.ending
            why = "somebody waits" if end is not None and end.on_request else "stop.max_wall_s is over"
            text = f"the evaluation of {self.awaits_evaluation} is given up: {why}"
            steps.append(LogLine(self.experiment, text, "warning"))
        elif not commander.settled:
            text = "no final checkpoint or evaluation: timed out"
            steps.append(LogLine(self.experiment, text, "warning"))
        elif commander.evaluating is not None:
            steps.append(LogLine(self.experiment, f"the evaluation of {commander.evaluating.file} is given up"))
        steps += self.callbacks.given_up()
        self.enter("releasing", now_s)
        over = "the run is over"
        return [*steps, *self.workers.drain("learner", over), *self.workers.drain("evaluator", over)]
