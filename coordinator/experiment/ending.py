"""The end of a run, in stages of bounded time, and its preemption.

Draining: the collectors hand in all data and end. After the last environment step, a learner behind
buffer.samples_per_insert, or with remaining batches of segments, catches up; otherwise the learner stops at once.
Settling: the last checkpoint is saved, and evaluated if needed; a dead evaluator is replaced. Then callbacks receive
the end. Releasing: all remaining workers end their work.

A preempted run gives all workers to a run of higher priority, after handing in everything, and waits again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from remuda.coordinator.effects import Step
from remuda.coordinator.experiment.policy import PolicyTraining
from remuda.coordinator.experiment.workers import ExperimentWorkers
from remuda.coordinator.leases import LeaseBook
from remuda.training.commander.end import End, evaluation_is_too_late, time_is_over
from remuda.training.effects import LogLine
from remuda.training.run_snapshot import Stage
from remuda.training.status import RunState
from remuda.wire.messages import ROLES, Counters, Role

STAGE_LONGEST_S: dict[Stage, float] = {"draining": 60.0, "settling": 600.0, "releasing": 60.0}
"""The time limit of a stage. Settling has this time once the last checkpoints are saved; saving has the time of the
config in addition."""
STOPPED_EVALUATION_S = 10.0
"""Time limit of the last evaluation after a request to stop."""
REPLACEMENT_S = 30.0
"""Time limit for a replacement of the last evaluator, or of a learner that catches up or saves: a nanny restarts a
worker within this time."""
_LET_GO_LAST: tuple[Role, ...] = ("learner", "evaluator", "inference")
"""In a preemption, these work until all collectors have handed in."""


@dataclass
class _LastWork:
    """The last work for a policy, and the waits for this work."""

    policy: PolicyTraining
    done: bool = False
    """Nothing is waited for in this stage any more."""
    awaited: str | None = None
    """The awaited evaluation at the last check, and the start of the wait."""
    awaited_since_s: float = 0.0
    alone_since_s: float | None = None
    """Time since the awaited evaluator or learner is missing; None while both are present."""

    @property
    def awaits_evaluation(self) -> str | None:
        """File name of the checkpoint with the only evaluation that keeps the policy from ending; None otherwise."""
        commander = self.policy.commander
        if not commander.final_saved or commander.settled or commander.evaluating is None:
            return None
        return commander.evaluating.file

    def time_is_over(self, counters: Counters, now_s: float) -> bool:
        """True if the time for the last evaluation is over. stop.max_wall_s and a request to stop limit it."""
        commander, awaited = self.policy.commander, self.awaits_evaluation
        waited_s = now_s - self.awaited_since_s
        if awaited is None or awaited != self.awaited or commander.ending is None:
            return False
        if commander.ending.on_request and waited_s >= STOPPED_EVALUATION_S:
            return True
        return evaluation_is_too_late(commander.config.stop, wall_s=counters.wall_s, waited_s=waited_s)

    def is_alone(self, now_s: float, *, lacks: bool) -> bool:
        """True if a worker that the policy `lacks` has been missing for too long to wait for."""
        if not lacks:
            self.alone_since_s = None
            return False
        if self.alone_since_s is None:
            self.alone_since_s = now_s
        return now_s >= self.alone_since_s + REPLACEMENT_S


class ExperimentShutdown:
    """Keeps the stage of the end; `working` while nothing has ended the run. All policies pass through each stage
    together."""

    def __init__(
        self,
        experiment: str,
        leases: LeaseBook,
        workers: ExperimentWorkers,
        policies: Sequence[PolicyTraining],
        *,
        save_s: float,
        bounded: bool,
    ) -> None:
        """`save_s` is the time limit for saving a checkpoint. `bounded`: stages have a time limit; a serial run never
        waits."""
        self._experiment = experiment
        self._leases, self._workers = leases, workers
        self._last_work = [_LastWork(policy) for policy in policies]
        self._save_s, self._bounded = save_s, bounded
        self.stage: Stage = "working"
        self.nobody_comes = False
        """The coordinator itself ends: no worker joins the herd any more, and present workers may be leaving."""
        self._deadline_s = 0.0
        self._saved = False
        """The last checkpoints are saved; the following steps have a new deadline."""

    @property
    def complete(self) -> bool:
        """True once all workers have ended their work."""
        return self.stage == "releasing" and not len(self._leases)

    @property
    def lacks_evaluator(self) -> bool:
        """True if a last checkpoint must be played and no evaluator is present."""
        return self.stage == "settling" and any(each.policy.dispatch.lacks_evaluator for each in self._last_work)

    @property
    def awaits_evaluation(self) -> str | None:
        """File name of the first checkpoint with an evaluation that keeps the run from ending; None otherwise."""
        awaited = (each.awaits_evaluation for each in self._last_work if self.stage == "settling")
        return next((file for file in awaited if file is not None), None)

    def check_bounds(
        self, policy: PolicyTraining, counters: Counters, now_s: float, *, preempted: bool = False
    ) -> None:
        """End a run without a ready learner of a policy once a bound of `stop` has passed. If a learner would still
        catch up, the run waits for the learner that is preparing, or a little for another; a preempted run waits until
        the run has workers again."""
        commander = policy.commander
        end = commander.reached(counters) if commander.ending is None else None
        if end is not None and not (end.catches_up and (preempted or self._awaits_learner(policy, counters, now_s))):
            commander.end(end)

    def _awaits_learner(self, policy: PolicyTraining, counters: Counters, now_s: float) -> bool:
        in_time = not time_is_over(policy.commander.config.stop, counters)
        lacks = self._leases.learner_of(policy.policy_index) is None
        return in_time and not self._is_alone(self._last_work[policy.policy_index], now_s, lacks=lacks)

    def _begin(self, end: End, now_s: float) -> list[Step]:
        self.enter("draining", now_s)
        steps: list[Step] = [*self._last_work[0].policy.dispatch.outcomes.run_ends(end)]
        for policy in (each.policy for each in self._last_work):
            if not end.catches_up or not policy.flow.is_open:
                steps += self._stop_learning(policy)
            elif owed := policy.flow.updates_owed():
                text = f"the learner catches up: {policy.flow.owes} owed: {owed}"
                steps += policy.own([LogLine(self._experiment, text)])
        return [*steps, *self._workers.drain("collector", end.reason), *self._workers.drain("reanalyzer", end.reason)]

    def hurry(self) -> list[Step]:
        """End sooner, without letting learners catch up."""
        return self._stop_open_learners() if self.stage == "draining" else []

    def advance(self, end: End, now_s: float) -> list[Step]:
        """Begin, or continue through every completed stage. `end` is the reason for the end of the run."""
        steps = self._begin(end, now_s) if self.stage == "working" else list[Step]()
        if self.stage == "draining" and not any(self._catches_up(each.policy, now_s) for each in self._last_work):
            steps += self._stop_open_learners()
            if not self._leases.count("collector") or self._is_late(now_s):
                steps += self._begin_settling(now_s)
        if self.stage == "settling":
            for each in self._last_work:
                steps += each.policy.own(self._use_newest_checkpoint(each.policy, now_s))
            if not self._saved and all(each.policy.commander.final_saved for each in self._last_work):
                self._saved, self._deadline_s = True, min(self._deadline_s, now_s + self._longest_s("settling"))
            for each in self._last_work:
                steps += each.policy.own(self._settle(each, now_s))
            if all(each.done for each in self._last_work):
                steps += self._release(now_s)
        if self.stage == "releasing" and self._is_late(now_s):
            for role in ROLES:
                steps += self._workers.dismiss(role)
        return steps

    def enter(self, stage: Stage, now_s: float, left_s: float | None = None) -> None:
        """Begin a stage, with the full time limit or the time `left_s` from before a restart of the coordinator."""
        saving_s = self._save_s if stage == "settling" else 0.0
        whole_s = self._longest_s(stage) + saving_s
        self.stage, self._deadline_s, self._saved = stage, now_s + (whole_s if left_s is None else left_s), False
        for each in self._last_work:
            each.done, each.alone_since_s = False, None

    def _longest_s(self, stage: Stage) -> float:
        return STAGE_LONGEST_S.get(stage, 0.0) if self._bounded else math.inf

    def left_s(self, now_s: float) -> float | None:
        """Time left in this stage; None before the end begins."""
        return None if self.stage == "working" or not self._bounded else self._deadline_s - now_s

    def _catches_up(self, policy: PolicyTraining, now_s: float) -> bool:
        """True while the learner has updates to catch up with; the last chunks for them may still arrive."""
        commander, flow = policy.commander, policy.flow
        end = commander.ending
        if not flow.is_open or end is None or not end.catches_up or self._is_late(now_s):
            return False
        in_time = not time_is_over(commander.config.stop, policy.counters(now_s))
        return in_time and flow.learns_on(more_to_come=self._leases.count("collector") > 0)

    def _stop_open_learners(self) -> list[Step]:
        policies = (each.policy for each in self._last_work if each.policy.flow.is_open)
        return [step for policy in policies for step in self._stop_learning(policy)]

    def _stop_learning(self, policy: PolicyTraining) -> list[Step]:
        """Stop a learner: no more batches, and no further update."""
        policy.flow.close()
        return self._workers.stop_training(policy)

    def _is_late(self, now_s: float) -> bool:
        return now_s > self._deadline_s

    def _is_alone(self, each: _LastWork, now_s: float, *, lacks: bool) -> bool:
        return each.is_alone(now_s, lacks=lacks) or (lacks and self.nobody_comes)

    def _begin_settling(self, now_s: float) -> list[Step]:
        steps = [*self._workers.dismiss("collector"), *self._workers.drain("inference", "the collectors are done")]
        self.enter("settling", now_s)
        for policy in (each.policy for each in self._last_work):
            decisions = policy.commander.save_final()
            steps += policy.own(policy.dispatch.carry_out(decisions, policy.counters(now_s), now_s))
        return steps

    def _use_newest_checkpoint(self, policy: PolicyTraining, now_s: float) -> list[Step]:
        """Use the newest checkpoint as the last if no learner is present: a new learner would begin at this checkpoint,
        and waiting gains nothing. Wait briefly for a learner in preparation, which saves the last counters."""
        commander, learner = policy.commander, self._leases.learner_of(policy.policy_index)
        if commander.final_saved or (learner is not None and learner.ready):
            return []
        counters, began_s = policy.counters(now_s), self._deadline_s - STAGE_LONGEST_S["settling"] - self._save_s
        in_time = now_s < began_s + REPLACEMENT_S and not time_is_over(commander.config.stop, counters)
        if learner is not None and in_time and not self.nobody_comes:
            return []
        return policy.dispatch.use_newest_checkpoint(counters, now_s)

    def _settle(self, each: _LastWork, now_s: float) -> list[Step]:
        """Log an awaited evaluation once; send the end to the callbacks as the last action of this stage."""
        commander, counters, steps = each.policy.commander, each.policy.counters(now_s), list[Step]()
        awaited = each.awaits_evaluation
        if awaited is not None and awaited != each.awaited:
            each.awaited, each.awaited_since_s = awaited, now_s
            steps.append(LogLine(self._experiment, f"waits for the evaluation of {awaited}"))
        given_up = self._is_late(now_s) or each.time_is_over(counters, now_s)
        given_up = self._is_alone(each, now_s, lacks=each.policy.dispatch.lacks_evaluator) or given_up
        each.done = False
        if commander.settled or given_up:
            assert commander.ending is not None, "the run ends"
            each.done, told = each.policy.callbacks.concluded(commander.ending, counters, now_s)
            steps += told
        return steps

    def _release(self, now_s: float) -> list[Step]:
        steps: list[Step] = []
        for each in self._last_work:
            lines = [*self._what_is_given_up(each, now_s), *each.policy.callbacks.given_up()]
            steps += each.policy.own(lines)
        self.enter("releasing", now_s)
        over = "the run is over"
        return [*steps, *self._workers.drain("learner", over), *self._workers.drain("evaluator", over)]

    def _what_is_given_up(self, each: _LastWork, now_s: float) -> list[Step]:
        commander = each.policy.commander
        if each.time_is_over(each.policy.counters(now_s), now_s):
            end = commander.ending
            why = "somebody waits" if end is not None and end.on_request else "stop.max_wall_s is over"
            text = f"the evaluation of {each.awaits_evaluation} is given up: {why}"
            return [LogLine(self._experiment, text, "warning")]
        if not commander.settled:
            return [LogLine(self._experiment, "no final checkpoint or evaluation: timed out", "warning")]
        if commander.evaluating is not None:
            return [LogLine(self._experiment, f"the evaluation of {commander.evaluating.file} is given up")]
        return []


class Preemption:
    """Collectors hand in their chunks, learners stop and save, then all workers let go.

    Each next action follows from the journaled leases and saves, so a restarted coordinator continues. A worker that
    does not answer is dismissed like any worker: for a lost learner, the newest checkpoint counts.
    """

    def __init__(
        self,
        experiment: str,
        run: RunState,
        leases: LeaseBook,
        workers: ExperimentWorkers,
        policies: Sequence[PolicyTraining],
    ) -> None:
        self._experiment, self._run = experiment, run
        self._leases, self._workers, self._policies = leases, workers, policies
        self.by = ""
        """Name of the run that needs the workers; empty for a run that was not preempted, or works again."""

    @property
    def leaves(self) -> bool:
        """True while workers hand in and let go."""
        return bool(self.by) and len(self._leases) > 0

    def begin(self, by: str, now_s: float) -> list[Step]:
        """Have collectors hand in, and learners save; a learner in preparation has nothing to save."""
        self.by = by
        reason = f"{by} has a higher priority"
        steps: list[Step] = [LogLine(self._experiment, f"hands in and gives all workers back: {reason}")]
        steps += [*self._workers.drain("collector", reason), *self._workers.drain("reanalyzer", reason)]
        steps += self._workers.drain("learner", reason, preparing=True)
        return [*steps, *(step for policy in self._policies for step in policy.hand_in(now_s))]

    def advance(self, now_s: float) -> list[Step]:
        """Let all others go once all collectors have handed in and everything is saved; only for a preempted run."""
        self.pause(now_s)
        if self._leases.count("collector") or any(policy.dispatch.is_saving for policy in self._policies):
            return []
        last: list[Role] = [role for role in _LET_GO_LAST if self._leases.count_staying(role)]
        return [step for role in last for step in self._workers.drain(role, f"{self.by} has a higher priority")]

    def pause(self, now_s: float) -> None:
        """Stop the clock of the run once all workers are gone."""
        if self.by and not len(self._leases) and self._run.since_s is not None:
            self._run.pause(now_s)

    def end(self, now_s: float) -> None:
        """Start the clock again with the first worker, once all workers were gone."""
        if self.by and not len(self._leases):
            self.by = ""
            self._run.start(now_s)
