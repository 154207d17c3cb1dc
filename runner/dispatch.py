"""What a serial run's commander decides, carried out: checkpoints are saved, judged and written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from remuda.evaluator.evaluate import Episode, merged_info
from remuda.evaluator.player import cut_warning, episode_report
from remuda.logbook.run_events import EventReport
from remuda.logbook.series import EventKind
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Policy
from remuda.runner.checkpoint_journal import CheckpointJournal
from remuda.runner.components import EXPLORATION, Components, RunHooks
from remuda.runner.status import SerialStatus
from remuda.storage.checkpoint_index import drop_models
from remuda.training.commander.commander import (
    Decision,
    End,
    JudgeByTraining,
    Save,
    StartEvaluation,
    Verdict,
    longer_s,
)
from remuda.training.commander.evaluation import EvaluationResult
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.commander.reports import evaluation_report, training_verdict_line, verdict_line
from remuda.wire.messages import CheckpointRecord, Counters

LONG_S = 30.0
"""An evaluation that takes longer is told of in the log, and again after so long."""


class _GivenUpError(Exception):
    """An evaluation is given up, since the run is to end; the message says why."""


@dataclass
class _UnderWay:
    """An evaluation."""

    record: CheckpointRecord
    episodes: int
    started_s: float
    """On the clock, as the next."""
    said_s: float
    over: int = 0
    """Episodes that have ended."""

    def text(self) -> str:
        """For people."""
        return f"evaluating {self.record.file}: {self.over} of {self.episodes} episodes are over"


@dataclass
class SerialDispatch:
    """Saves, evaluates and notes the verdicts, as parallel mode does with a learner and evaluators."""

    components: Components
    hooks: RunHooks
    status: SerialStatus
    progress: ProgressRows
    journal: CheckpointJournal
    _judged: Policy = field(init=False)
    _under_way: _UnderWay | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        algorithm = self.components.algorithm
        self._judged = make_policy(self.components.config, algorithm.observation, algorithm.action)

    def carry_out(self, decisions: Sequence[Decision]) -> None:
        """Do what was decided, and what is decided upon that. Raises OSError, JournalError, and what plays raises."""
        for decision in decisions:
            match decision:
                case Save():
                    self._save(decision)
                case StartEvaluation():
                    with self.components.timers("evaluate"):
                        self._evaluate(decision.record)
                case JudgeByTraining():
                    self._judge_by_training(decision.record)
                case End():
                    self.status.state = "stopping"
                    self._tell_of_event("run_ends", f"the run ends: {decision.explanation}")

    def _save(self, save: Save) -> None:
        components, commander = self.components, self.status.commander
        self.status.learner.require_finite()
        counters, end = self.status.counters(), commander.ending
        with components.timers("save"):
            rngs = {EXPLORATION: components.rollout.rng}
            record = components.outputs.save(
                components.algorithm, self.status.reached(counters), save.reason, rngs=rngs
            )
            decisions = commander.saved(save.reason, record)
            self._commit(counters)
            gone = components.checkpoints.add(record, keep=components.config.checkpoint.keep, in_use=commander.in_use)
            drop_models(components.folder, gone)
            if save.reason == "final" and end is not None and end.reason == "stopped":
                components.checkpoints.link_interrupt(record.train_iter)
        self.carry_out(decisions)

    def _evaluate(self, record: CheckpointRecord) -> None:
        """Judge a checkpoint by the weights in memory, which nothing has changed since they were saved or loaded."""
        status, commander = self.status, self.status.commander
        assert record.train_iter == status.learner.train_iter, "the learner has gone on"
        started_s = self.hooks.clock()
        self._judged.load_state(self.components.algorithm.acting_state())
        self._under_way = _UnderWay(record, self.components.config.evaluator.episodes, started_s, started_s)
        try:
            episodes = self.components.player.play_policy(
                self._judged,
                range(self.components.config.evaluator.episodes),
                progress=self._goes_on,
                finished=lambda episode, count: self._episode_finished(record, episode, count),
            )
        except _GivenUpError as why:
            commander.abandon_work()
            self._say(f"evaluation of {record.file} given up: {why}")
            return
        finally:
            self._under_way = status.waiting_for = None
        warning = cut_warning(episodes)
        if warning is not None:
            self.components.logbook.say("evaluator", warning, level="warning")
        returns = tuple(episode.return_ for episode in episodes)
        lengths = tuple(episode.length for episode in episodes)
        result = EvaluationResult(record, returns, lengths, self.hooks.clock() - started_s, merged_info(episodes))
        verdict = commander.evaluated(result)
        self.progress.evaluated(result)
        cut = sum(episode.cut for episode in episodes)
        self.components.logbook.emit(evaluation_report(result, best=verdict.best, cut=cut))
        self._keep_verdict(result, verdict, verdict_line(result, is_best=verdict.best, best=commander.best, cut=cut))

    def _judge_by_training(self, record: CheckpointRecord) -> None:
        commander = self.status.commander
        result = self.progress.judged_by_training(record)
        if result is None:
            commander.not_judged()
            return
        verdict = commander.evaluated(result)
        line = training_verdict_line(result, is_best=verdict.best, best=commander.best)
        self._keep_verdict(result, verdict, line, event="judged")

    def _keep_verdict(
        self, result: EvaluationResult, verdict: Verdict, line: str, *, event: EventKind | None = None
    ) -> None:
        self.components.checkpoints.set_reward(result.record.train_iter, result.reward_mean, best=verdict.best)
        self._commit(self.status.counters())
        if event is None:
            self._say(line)
        else:
            self._tell_of_event(event, line)
        self.carry_out(verdict.decisions)

    def _commit(self, counters: Counters) -> None:
        status = self.status
        priorities = status.learner.take_priorities()
        status.experience.update_priorities(priorities.rows, priorities.errors)
        self.journal.commit(status.reached(counters), status.state)

    def _goes_on(self, env_steps: int) -> None:
        """Some steps of an evaluation were taken. Raises _GivenUpError where it is to end; else shows how far it is."""
        if self.hooks.stop.ending:
            raise _GivenUpError(self.hooks.stop.reason)
        under_way, now_s, bound_s = self._under_way, self.hooks.clock(), self.components.config.stop.max_wall_s
        assert under_way is not None, "somebody plays"
        if bound_s is not None and now_s - self.status.started_s - bound_s >= longer_s(bound_s):
            raise _GivenUpError("stop.max_wall_s is over")
        self.status.waiting_for = under_way.text()
        status = self.status.news(now_s)
        if status is not None:
            self.hooks.on_progress(status)
        if now_s - under_way.said_s >= LONG_S:
            under_way.said_s = now_s
            self._say(f"{under_way.text()} after {now_s - under_way.started_s:.0f} s")

    def _episode_finished(self, record: CheckpointRecord, episode: Episode, count: int) -> None:
        if self._under_way is not None:
            self._under_way.over = count
        report = episode_report(episode, count, train_iter=record.train_iter, env_step=record.env_step)
        self.components.logbook.emit(report)

    def _tell_of_event(self, kind: EventKind, text: str) -> None:
        """In the log and in the time series."""
        self._say(text)
        counters = self.status.counters()
        self.components.logbook.emit(
            EventReport(
                train_iter=counters.train_iter,
                env_step=counters.env_step,
                wall_s=counters.wall_s,
                kind=kind,
                what=text,
            )
        )

    def _say(self, text: str) -> None:
        self.components.logbook.say("commander", text)
