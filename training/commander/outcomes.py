"""Consequences of the commander's decisions in both modes: records of the run, and further decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from remuda.config.current import without_secrets
from remuda.logbook.episode_reports import EvaluationReport
from remuda.logbook.reports import FilmReport, HistogramReport
from remuda.training.commander.callbacks import CallbackBook
from remuda.training.commander.commander import Commander, Decision
from remuda.training.commander.curriculum import Curriculum
from remuda.training.commander.end import End
from remuda.training.commander.evaluation import BestCheckpoint
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.effects import Emit, Happened, LogLine, RecordCheckpoint, RecordEffect, RecordReward
from remuda.training.snapshot import EvaluationResult
from remuda.wire.messages import CheckpointReason, CheckpointRecord, Film, Histogram


@dataclass(frozen=True)
class Outcome:
    """Effects and decisions to carry out, in this order, after the journal is written; so every record is true."""

    effects: Sequence[RecordEffect | Happened] = ()
    decisions: Sequence[Decision] = ()


class Outcomes:
    """Reports events of checkpoints to the commander, callbacks and progress.txt, and returns the consequences.

    Checkpoints are saved and played as the mode requires: in this process, or by workers.
    """

    def __init__(self, experiment: str, commander: Commander, progress: ProgressRows, callbacks: CallbackBook) -> None:
        """`experiment` is the id of the run in effects."""
        self._experiment = experiment
        self._commander = commander
        self._progress = progress
        self._callbacks = callbacks
        self.lent: Callable[[], tuple[int, ...]] = tuple
        """Returns the checkpoints, by train_iter, used by evaluations of other policies."""

    def saved(self, reason: CheckpointReason, record: CheckpointRecord) -> Outcome:
        """A checkpoint is saved."""
        commander = self._commander
        decisions = commander.saved(reason, record)
        self._callbacks.saved(reason, record)
        end = commander.ending
        listed = RecordCheckpoint(
            self._experiment,
            record,
            keep=commander.config.checkpoint.keep,
            interrupted=reason == "final" and end is not None and end.on_request,
            in_use=(*commander.in_use, *self.lent()),
        )
        return Outcome([listed], decisions)

    def evaluated(self, result: EvaluationResult, *, actions: Mapping[str, Histogram] | None = None) -> Outcome:
        """Take the result of an evaluation. `actions`: histograms of the policy's actions, if counted."""
        outcome = self._commander.evaluated(result)
        self._progress.evaluated(result)
        self._callbacks.evaluated(result, best=outcome.best)
        line = evaluation_line(result, is_best=outcome.best, best=self._commander.best)
        effects: list[RecordEffect | Happened] = [
            Emit(self._experiment, evaluation_report(result, best=outcome.best, has_tasks=self._has_tasks)),
            self._reward(result, best=outcome.best),
            LogLine(self._experiment, line, "warning" if result.cut else "info"),
        ]
        if actions:
            effects.append(Emit(self._experiment, actions_report(result.record, actions)))
        return Outcome(effects, outcome.decisions)

    def filmed(self, film: Film, train_iter: int, env_step: int) -> list[Emit]:
        """Take the film of a checkpoint's first episode. Films of unknown checkpoints are dropped."""
        newest = self._commander.last_record
        if newest is None or train_iter > newest.train_iter:
            return []
        return [Emit(self._experiment, FilmReport(train_iter=train_iter, env_step=env_step, film=film))]

    def evaluated_by_training(self, record: CheckpointRecord) -> Outcome:
        """Evaluate a checkpoint by the newest training episodes, once enough exist, since no episodes are played."""
        result = self._progress.evaluated_by_training(record)
        if result is None:
            self._commander.not_evaluated()
            return Outcome()
        outcome = self._commander.evaluated(result)
        self._callbacks.evaluated(result, best=outcome.best)
        line = training_evaluation_line(result, is_best=outcome.best, best=self._commander.best)
        effects: list[RecordEffect | Happened] = [
            self._reward(result, best=outcome.best),
            LogLine(self._experiment, line),
            Happened(self._experiment, "evaluated_by_training", line),
        ]
        return Outcome(effects, outcome.decisions)

    def next_task(self, together: Sequence[Commander], env_step: int) -> Sequence[LogLine | Happened]:
        """Begin the next task, if due; one with every call. `together` has the commanders of all policies."""
        commander = self._commander
        state = commander.curriculum.next([each.curriculum for each in together], env_step)
        if state is None or commander.ending is not None:
            return ()
        new_best = commander.begin_task(state)
        line = task_line(commander.curriculum, new_best=new_best)
        self._progress.begin_task()
        return LogLine(self._experiment, line), Happened(self._experiment, "task_begins", line)

    def run_ends(self, end: End) -> list[LogLine | Happened]:
        """Something has ended the run."""
        text = f"the run ends: {end.explanation}"
        return [LogLine(self._experiment, text), Happened(self._experiment, "run_ends", text)]

    def run_is_over(self, end: End, wall_s: float) -> LogLine:
        """Everything is done; the last line of a run."""
        return LogLine(self._experiment, f"the run is over after {wall_s:.1f} s: {end.text}")

    def _reward(self, result: EvaluationResult, *, best: bool) -> RecordReward:
        task, kwargs_json = self._commander.curriculum.name_of(result.task), without_secrets(result.task.kwargs_json)
        return RecordReward(self._experiment, result.record.train_iter, result.reward_mean, best, task, kwargs_json)

    @property
    def _has_tasks(self) -> bool:
        return self._commander.curriculum.shown is not None


def evaluation_report(result: EvaluationResult, *, best: bool, has_tasks: bool) -> EvaluationReport:
    """Return the table of an evaluation; `best`: the best so far."""
    return EvaluationReport(
        train_iter=result.record.train_iter,
        env_step=result.record.env_step,
        ckpt_name=result.record.file,
        returns=result.returns,
        lengths=result.lengths,
        duration_s=result.duration_s,
        info=result.info,
        cut=result.cut,
        wall_s=result.record.wall_s,
        best=best,
        task=result.task.number if has_tasks else None,
    )


def actions_report(record: CheckpointRecord, actions: Mapping[str, Histogram]) -> HistogramReport:
    """Return histograms of the actions in a checkpoint's evaluation."""
    return HistogramReport(train_iter=record.train_iter, env_step=record.env_step, of="actions", histograms=actions)


def task_line(curriculum: Curriculum, *, new_best: bool) -> str:
    """Return the commander's line about the beginning of a task."""
    task = curriculum.task
    kwargs = without_secrets(task.kwargs_json or "{}")
    best = "a new best begins" if new_best else "evaluations measure the same as before"
    return f"task {task.number} begins at env_step {curriculum.state.since_env_step}, with env.kwargs {kwargs}: {best}"


def evaluation_line(result: EvaluationResult, *, is_best: bool, best: BestCheckpoint | None) -> str:
    """The commander's line about an evaluation."""
    said = (
        f"evaluation of {result.record.file} at env_step {result.record.env_step}: mean return "
        f"{result.reward_mean:.6g} over {len(result.returns)} episodes ({_comparison(is_best, best)})"
    )
    return f"{said}; {result.cut} of them cut at evaluator.max_episode_steps" if result.cut else said


def training_evaluation_line(result: EvaluationResult, *, is_best: bool, best: BestCheckpoint | None) -> str:
    """Return the commander's line about a checkpoint evaluated by training episodes."""
    return (
        f"{result.record.file} at env_step {result.record.env_step}: mean return {result.reward_mean:.6g} over the "
        f"newest {len(result.returns)} training episodes ({_comparison(is_best, best)})"
    )


def _comparison(is_best: bool, best: BestCheckpoint | None) -> str:
    return "the best so far" if is_best else "no best yet" if best is None else f"best is {best.reward_mean:.6g}"
