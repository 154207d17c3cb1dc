"""What a serial run's commander decides, carried out: checkpoints are saved, judged and written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from remuda.coordinator.commander.commander import (
    Decision,
    End,
    JudgeByTraining,
    Save,
    StartEvaluation,
    Verdict,
    longer_s,
)
from remuda.coordinator.commander.evaluation import EvaluationResult
from remuda.coordinator.commander.progress_rows import ProgressRows
from remuda.coordinator.commander.reports import evaluation_report, training_verdict_line, verdict_line
from remuda.evaluator.evaluate import Episode, merged_info
from remuda.evaluator.player import cut_warning, episode_report
from remuda.logbook.run_events import EventReport
from remuda.logbook.series import EventKind
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Policy
from remuda.runner.keeping import Keeper
from remuda.runner.parts import EXPLORATION, Parts, Watch
from remuda.runner.standing import Standing
from remuda.storage.checkpoint_index import drop_models
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
class Judging:
    """Saves, evaluates and notes the verdicts, as parallel mode does with a learner and evaluators."""

    parts: Parts
    watch: Watch
    standing: Standing
    progress: ProgressRows
    keeper: Keeper
    _judged: Policy = field(init=False)
    _under_way: _UnderWay | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        algorithm = self.parts.algorithm
        self._judged = make_policy(self.parts.config, algorithm.observation, algorithm.action)

    def carry_out(self, decisions: Sequence[Decision]) -> None:
        """Do what was decided, and what is decided upon that. Raises OSError, JournalError, and what plays raises."""
        for decision in decisions:
            match decision:
                case Save():
                    self._save(decision)
                case StartEvaluation():
                    with self.parts.timers("evaluate"):
                        self._evaluate(decision.record)
                case JudgeByTraining():
                    self._judge_by_training(decision.record)
                case End():
                    self.standing.state = "stopping"
                    self._tell_of_event("run_ends", f"the run ends: {decision.explanation}")

    def _save(self, save: Save) -> None:
        parts, commander = self.parts, self.standing.commander
        self.standing.learner.require_finite()
        counters, end = self.standing.counters(), commander.ending
        with parts.timers("save"):
            rngs = {EXPLORATION: parts.rollout.rng}
            record = parts.outputs.save(parts.algorithm, self.standing.reached(counters), save.reason, rngs=rngs)
            decisions = commander.saved(save.reason, record)
            self._commit(counters)
            gone = parts.checkpoints.add(record, keep=parts.config.checkpoint.keep, in_use=commander.in_use)
            drop_models(parts.folder, gone)
            if save.reason == "final" and end is not None and end.reason == "stopped":
                parts.checkpoints.link_interrupt(record.train_iter)
        self.carry_out(decisions)

    def _evaluate(self, record: CheckpointRecord) -> None:
        """Judge a checkpoint by the weights in memory, which nothing has changed since they were saved or loaded."""
        standing, commander = self.standing, self.standing.commander
        assert record.train_iter == standing.learner.train_iter, "the learner has gone on"
        started_s = self.watch.clock()
        self._judged.load_state(self.parts.algorithm.acting_state())
        self._under_way = _UnderWay(record, self.parts.config.evaluator.episodes, started_s, started_s)
        try:
            episodes = self.parts.player.play_policy(
                self._judged,
                range(self.parts.config.evaluator.episodes),
                progress=self._goes_on,
                finished=lambda episode, count: self._episode_finished(record, episode, count),
            )
        except _GivenUpError as why:
            commander.abandon_work()
            self._say(f"evaluation of {record.file} given up: {why}")
            return
        finally:
            self._under_way = standing.waiting_for = None
        warning = cut_warning(episodes)
        if warning is not None:
            self.parts.logbook.say("evaluator", warning, level="warning")
        returns = tuple(episode.return_ for episode in episodes)
        lengths = tuple(episode.length for episode in episodes)
        result = EvaluationResult(record, returns, lengths, self.watch.clock() - started_s, merged_info(episodes))
        verdict = commander.evaluated(result)
        self.progress.evaluated(result)
        cut = sum(episode.cut for episode in episodes)
        self.parts.logbook.emit(evaluation_report(result, best=verdict.best, cut=cut))
        self._keep_verdict(result, verdict, verdict_line(result, is_best=verdict.best, best=commander.best, cut=cut))

    def _judge_by_training(self, record: CheckpointRecord) -> None:
        commander = self.standing.commander
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
        self.parts.checkpoints.set_reward(result.record.train_iter, result.reward_mean, best=verdict.best)
        self._commit(self.standing.counters())
        if event is None:
            self._say(line)
        else:
            self._tell_of_event(event, line)
        self.carry_out(verdict.decisions)

    def _commit(self, counters: Counters) -> None:
        standing = self.standing
        priorities = standing.learner.take_priorities()
        standing.experience.update_priorities(priorities.rows, priorities.errors)
        self.keeper.commit(standing.reached(counters), standing.state)

    def _goes_on(self, env_steps: int) -> None:
        """Some steps of an evaluation were taken. Raises _GivenUpError where it is to end; else shows how far it is."""
        if self.watch.stop.ending:
            raise _GivenUpError(self.watch.stop.reason)
        under_way, now_s, bound_s = self._under_way, self.watch.clock(), self.parts.config.stop.max_wall_s
        assert under_way is not None, "somebody plays"
        if bound_s is not None and now_s - self.standing.started_s - bound_s >= longer_s(bound_s):
            raise _GivenUpError("stop.max_wall_s is over")
        self.standing.waiting_for = under_way.text()
        status = self.standing.news(now_s)
        if status is not None:
            self.watch.on_progress(status)
        if now_s - under_way.said_s >= LONG_S:
            under_way.said_s = now_s
            self._say(f"{under_way.text()} after {now_s - under_way.started_s:.0f} s")

    def _episode_finished(self, record: CheckpointRecord, episode: Episode, count: int) -> None:
        if self._under_way is not None:
            self._under_way.over = count
        report = episode_report(episode, count, train_iter=record.train_iter, env_step=record.env_step)
        self.parts.logbook.emit(report)

    def _tell_of_event(self, kind: EventKind, text: str) -> None:
        """In the log and in the time series."""
        self._say(text)
        counters = self.standing.counters()
        self.parts.logbook.emit(
            EventReport(
                train_iter=counters.train_iter,
                env_step=counters.env_step,
                wall_s=counters.wall_s,
                kind=kind,
                what=text,
            )
        )

    def _say(self, text: str) -> None:
        self.parts.logbook.say("commander", text)
