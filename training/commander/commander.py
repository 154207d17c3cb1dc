"""Decisions about an experiment: when to evaluate, save and stop, and the best checkpoint.

Pure: each call reports an event (counted chunks, updates, saved checkpoints, finished evaluations) and returns
decisions.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from msgspec import structs

from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import declaration
from remuda.training.commander.curriculum import Curriculum
from remuda.training.commander.end import STOP_VALUE, End, solved
from remuda.training.commander.evaluation import (
    Awaited,
    BestCheckpoint,
    boundary_at,
    due_env_step,
    is_best,
    next_boundary,
)
from remuda.training.journal_entry import ResumePoint
from remuda.training.snapshot import CommanderSnapshot, EvaluationResult, TaskSnapshot
from remuda.wire.messages import CheckpointReason, CheckpointRecord, Counters


@dataclass(frozen=True)
class Save:
    """The learner has to save a checkpoint."""

    reason: CheckpointReason


@dataclass(frozen=True)
class StartEvaluation:
    """The evaluators have to play exactly this checkpoint."""

    record: CheckpointRecord


@dataclass(frozen=True)
class EvaluateByTraining:
    """No episodes are played: the mean return of the newest training episodes counts as this checkpoint's
    evaluation."""

    record: CheckpointRecord


Decision = Save | StartEvaluation | EvaluateByTraining | End


@dataclass(frozen=True)
class EvaluationOutcome:
    """Consequences of an evaluation."""

    best: bool
    """Its checkpoint is the best so far."""
    decisions: tuple[Decision, ...]


class Commander:
    """Decides for an experiment. At most one save and one evaluation run at a time. Work due meanwhile is done once,
    afterwards."""

    def __init__(self, config: ExperimentConfig, resumed: ResumePoint | None = None) -> None:
        self.config = config
        self.curriculum = Curriculum(config, None if resumed is None else resumed.task)
        """Task of the next evaluations."""
        self._newest_is_best = declaration(config).self_play or config.self_play.share > 0
        self._next_evaluation = 0
        """Environment step of the next evaluation; the first is due at once."""
        self._next_checkpoint = config.checkpoint.interval_env_steps
        """None without checkpoints by environment steps."""
        self.saving: CheckpointReason | None = None
        """Reason of the requested save, until it is saved."""
        self._asked_env_step = 0
        """Environment step of the request to save."""
        self.evaluating: CheckpointRecord | None = None
        """The checkpoint being played."""
        self._to_evaluate: CheckpointRecord | None = None
        self.ending: End | None = None
        """Reason for the end of the run; None while the run continues. Never changes back."""
        self.final_saved = False
        """The last checkpoint is saved."""
        self.skips_final_evaluation = False
        """True if the last checkpoint is not evaluated."""
        self._evaluated_train_iter = -1
        self.last: EvaluationResult | None = None
        """The newest finished evaluation."""
        self.best: BestCheckpoint | None = None
        """The checkpoint with the highest mean return, the earlier of two equals; in self-play the newest evaluated."""
        self.last_record: CheckpointRecord | None = None
        """The newest checkpoint."""
        self._opponents = deque[CheckpointRecord](maxlen=_opponents_kept(config))
        """In self-play without a league the newest checkpoints, oldest first: the opponents, and one more, since the
        newest checkpoint plays against as many older checkpoints."""
        self.reset: tuple[CheckpointRecord, str] | None = None
        """Weights with which the learner is to begin again, and the reason: of an exploiter in a league."""
        if resumed is not None:
            self._resume(resumed)

    # --- what happened ---

    def started(self) -> list[Decision]:
        """Save the learner's initial weights, and evaluate them at env_step 0.

        A resumed run evaluates its checkpoint if it never was evaluated, and ends at once if the checkpoint had reached
        the stop value.
        """
        if self.last_record is not None:
            return self._started_again(self.last_record)
        self.saving = "initial"
        return [Save("initial")]

    def progressed(self, counters: Counters) -> list[Decision]:
        """Chunks were counted, updates done, or time passed."""
        if self.ending is not None:
            return []
        end = self.reached(counters)
        if end is not None:
            return self.end(end)
        last = self.last_record
        if self.saving is not None or (last is not None and last.train_iter == counters.train_iter):
            return []  # a save is under way, or nothing was learned since the last
        if self.reset is not None and self.evaluating is None:
            return self._save("reset", counters.env_step)
        if counters.env_step >= self._next_evaluation and self.evaluating is None and self._to_evaluate is None:
            return self._save("evaluation", counters.env_step)
        interval_s = self.config.checkpoint.interval_s
        is_late = interval_s is not None and last is not None and counters.wall_s >= last.wall_s + interval_s
        if is_late or (self._next_checkpoint is not None and counters.env_step >= self._next_checkpoint):
            return self._save("interval", counters.env_step)
        return []

    def saved(self, reason: CheckpointReason, record: CheckpointRecord) -> list[Decision]:
        """A checkpoint is saved."""
        if self.last_record is None or self.last_record.train_iter < record.train_iter:
            self._opponents.append(record)
        self.last_record = record
        if self.saving == reason:
            self.saving = None
        if reason == "reset":
            self.reset = None
        self._saved_at(record.env_step)
        if reason in ("initial", "evaluation") and self.ending is None:
            return self._evaluate(record)
        if reason == "final":
            self.final_saved = True
            if self._wants_final_evaluation(record):
                return self._evaluate(record)
        return []

    def evaluated(self, result: EvaluationResult) -> EvaluationOutcome:
        """An evaluation is complete."""
        played, mean = self.curriculum.name_of(result.task), result.reward_mean
        result = structs.replace(result, record=structs.replace(result.record, task=played))
        self.curriculum.evaluated(result.task, mean)
        counts = played == self.curriculum.name
        self.evaluating = None
        if counts:
            self._evaluated_train_iter = result.record.train_iter
        self.last = result
        rival = None if self._newest_is_best else self.best
        best = counts and is_best(mean, None if rival is None else rival.reward_mean)
        if best:
            self.best = BestCheckpoint(result.record, mean)
        end = self._solved_by(result.record, mean)
        decisions: list[Decision] = [] if end is None else self.end(end)
        if self._to_evaluate is not None:
            record, self._to_evaluate = self._to_evaluate, None
            if self.ending is None or self._wants_final_evaluation(record):
                decisions += self._evaluate(record)
        return EvaluationOutcome(best, tuple(decisions))

    def not_evaluated(self) -> None:
        """Too few training episodes have ended to evaluate the checkpoint by."""
        self.evaluating = None

    def begin_task(self, state: TaskSnapshot) -> bool:
        """The run goes on to another task; whether a new best begins, since evaluations measure something else. Then a
        checkpoint is evaluated as soon as something was learned."""
        former = self.curriculum.name
        self.curriculum.begin(state)
        if self.curriculum.name == former:
            return False
        self.best, self._evaluated_train_iter = None, -1
        self._next_evaluation = min(self._next_evaluation, state.since_env_step)
        return True

    def end(self, end: End, *, skip_final_evaluation: bool = False) -> list[Decision]:
        """End the run. The first reason counts; a later call can only hasten the end."""
        self.skips_final_evaluation = self.skips_final_evaluation or skip_final_evaluation
        if self.ending is not None:
            return []
        self.ending = end
        return [end]

    def fail(self, end: End) -> None:
        """Fail the run, even if the run is already ending; no evaluation follows."""
        self.ending, self.skips_final_evaluation = end, True

    def save_final(self) -> list[Decision]:
        """Nothing more is collected or learned: the last checkpoint can be saved."""
        return self._save("final")

    def save_now(self, counters: Counters) -> list[Decision]:
        """Save the updates since the last checkpoint, since the process may end soon."""
        if self.ending is not None or self.saving is not None or self._is_saved(counters.train_iter):
            return []
        return self._save("interval", counters.env_step)

    def hand_in(self) -> list[Decision]:
        """Save all updates and do no more, for a preemption; an earlier save under way may lack the newest updates."""
        return self._save("preemption")

    def use_newest_checkpoint(self) -> list[Decision]:
        """Use the newest checkpoint as the last, since no learner is ready to save."""
        self.saving, self.final_saved = None, True
        record = self.last_record
        return [] if record is None or not self._wants_final_evaluation(record) else self._evaluate(record)

    def abandon_work(self) -> None:
        """Drop unfinished work of a lost learner or lost evaluators."""
        self.saving = None
        self.evaluating = None
        self._to_evaluate = None

    def retry_save(self) -> list[Decision]:
        """Repeat the request to save, after the loss of the learner. The next learner begins at the newest checkpoint,
        so only saves without new updates are requested at once; all others wait for updates."""
        if self.saving not in ("initial", "final"):
            self.saving = None
        return [] if self.saving is None else [Save(self.saving)]

    # --- what holds ---

    def reached(self, counters: Counters) -> End | None:
        """The end, if the counters have reached a bound of `stop`, or the checkpoint of a resumed run had."""
        stop, record = self.config.stop, self.last_record
        if counters.env_step >= stop.max_env_steps:
            return _reached("max_env_steps", stop.max_env_steps, "env_step", counters.env_step)
        if stop.max_train_iters is not None and counters.train_iter >= stop.max_train_iters:
            return _reached("max_train_iters", stop.max_train_iters, "train_iter", counters.train_iter)
        if stop.max_wall_s is not None and counters.wall_s >= stop.max_wall_s:
            return _reached("max_wall_s", stop.max_wall_s, "wall_s", counters.wall_s)
        return None if record is None or record.reward is None else self._solved_by(record, record.reward)

    def may_solve(self, record: CheckpointRecord) -> bool:
        """True if this checkpoint is evaluated at the last task, to which stop.stop_value applies."""
        return self.curriculum.is_last and record.task in ("", self.curriculum.name)

    def awaited(self, counters: Counters) -> Awaited | None:
        """Return the first evaluation that runs or is due, or None."""
        interval, record = self.config.evaluator.interval_env_steps, self.evaluating or self._to_evaluate
        if record is not None:
            return Awaited(due_env_step(record.env_step, record.train_iter, interval), begun=True)
        if self.ending is not None or not self.config.evaluator.episodes:
            return None
        if self.saving == "initial":
            return Awaited(0, begun=True)
        if self.saving == "evaluation":
            return Awaited(boundary_at(self._asked_env_step, interval), begun=True)
        is_due = counters.env_step >= self._next_evaluation and not self.config.learner.inference
        return Awaited(boundary_at(counters.env_step, interval), begun=False) if is_due else None

    @property
    def opponents(self) -> tuple[CheckpointRecord, ...]:
        """In self-play: checkpoints that play against newer policies in training, oldest first."""
        return tuple(self._opponents)[-self.config.self_play.keep :]

    def older_than(self, record: CheckpointRecord) -> tuple[CheckpointRecord, ...]:
        """Return the opponents of this checkpoint's evaluation in self-play, oldest first."""
        older = [each for each in self._opponents if each.train_iter < record.train_iter]
        return tuple(older[-self.config.self_play.keep :])

    @property
    def in_use(self) -> tuple[int, ...]:
        """Checkpoints, by train_iter, whose files an evaluation or self-play needs."""
        records = (self.evaluating, self._to_evaluate, *self._opponents)
        return tuple(record.train_iter for record in records if record is not None)

    @property
    def settled(self) -> bool:
        """True once the run has ended and its last checkpoint is saved, and evaluated if required."""
        evaluated = self.evaluating is None and self._to_evaluate is None
        return self.final_saved and (evaluated or self.skips_final_evaluation)

    # --- over a restart ---

    def snapshot(self) -> CommanderSnapshot:
        """Return the state for a restart."""
        return CommanderSnapshot(
            next_evaluation=self._next_evaluation,
            next_checkpoint=self._next_checkpoint,
            saving=self.saving,
            evaluating=self.evaluating,
            to_evaluate=self._to_evaluate,
            end=None if self.ending is None else (self.ending.reason, self.ending.explanation),
            final_saved=self.final_saved,
            skip_final_evaluation=self.skips_final_evaluation,
            evaluated_train_iter=self._evaluated_train_iter,
            last=self.last,
            best=None if self.best is None else (self.best.record, self.best.reward_mean),
            last_record=self.last_record,
            asked_env_step=self._asked_env_step,
            opponents=list(self._opponents),
            task=self.curriculum.state,
            reset=self.reset,
        )

    def restore(self, snapshot: CommanderSnapshot) -> None:
        """Continue from a snapshot."""
        self._next_evaluation, self._next_checkpoint = snapshot.next_evaluation, snapshot.next_checkpoint
        self.saving, self.evaluating, self._to_evaluate = snapshot.saving, snapshot.evaluating, snapshot.to_evaluate
        self.ending = None if snapshot.end is None else End(*snapshot.end)
        self.final_saved, self.skips_final_evaluation = snapshot.final_saved, snapshot.skip_final_evaluation
        self._evaluated_train_iter = snapshot.evaluated_train_iter
        self.last = snapshot.last
        self.best = None if snapshot.best is None else BestCheckpoint(*snapshot.best)
        self.last_record = snapshot.last_record
        self._asked_env_step = snapshot.asked_env_step
        self._opponents.extend(snapshot.opponents)
        self.curriculum.restore(snapshot.task)
        self.reset = snapshot.reset

    # --- inside ---

    def _resume(self, resumed: ResumePoint) -> None:
        self._evaluated_at(resumed.counters.env_step)
        self._saved_at(resumed.counters.env_step)
        self.last_record = resumed.record
        self._opponents.extend(resumed.checkpoints)
        if resumed.record.reward is not None:
            self._evaluated_train_iter = resumed.record.train_iter
        if resumed.best is not None and resumed.best.reward is not None:
            self.best = BestCheckpoint(resumed.best, resumed.best.reward)
        task = resumed.task
        if task.number and self.best is None and task.reached is None:  # nothing was evaluated at it
            self._next_evaluation = task.since_env_step

    def _started_again(self, record: CheckpointRecord) -> list[Decision]:
        if record.reward is None:
            return self._evaluate(record)
        end = self._solved_by(record, record.reward)
        return [] if end is None else self.end(end)

    def _solved_by(self, record: CheckpointRecord, reward: float) -> End | None:
        """The end, if this mean return of a checkpoint has reached the stop value: at the last task."""
        return solved(self.config.stop, record, reward) if self.may_solve(record) else None

    def _is_saved(self, train_iter: int) -> bool:
        """True without updates since the last checkpoint: due work then waits for the next update."""
        return self.last_record is not None and self.last_record.train_iter == train_iter

    def _evaluated_at(self, env_step: int) -> None:
        self._next_evaluation = next_boundary(env_step, self.config.evaluator.interval_env_steps)

    def _saved_at(self, env_step: int) -> None:
        interval = self.config.checkpoint.interval_env_steps
        if interval is not None:
            self._next_checkpoint = next_boundary(env_step, interval)

    def _save(self, reason: CheckpointReason, env_step: int = 0) -> list[Decision]:
        self.saving, self._asked_env_step = reason, env_step
        return [Save(reason)]

    def _evaluate(self, record: CheckpointRecord) -> list[Decision]:
        self._evaluated_at(record.env_step)
        if self.evaluating is not None:
            self._to_evaluate = record
            return []
        self.evaluating = record
        return [StartEvaluation(record) if self.config.evaluator.episodes else EvaluateByTraining(record)]

    def _wants_final_evaluation(self, record: CheckpointRecord) -> bool:
        if self.skips_final_evaluation or self.ending is None or self.ending.reason == STOP_VALUE:
            return False
        return record.train_iter != self._evaluated_train_iter


def _opponents_kept(config: ExperimentConfig) -> int:
    own = config.self_play
    return own.keep + 1 if own.share and own.league is None else 0


def _reached(reason: str, bound: float, counter: str, value: float) -> End:
    return End(reason, f"{counter} {value:.10g} has reached {reason} {bound:.10g}")
