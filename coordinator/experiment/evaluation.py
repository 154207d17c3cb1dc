"""Evaluations of checkpoints: shares of episodes for evaluators, results, saves by the learner, and what follows."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from remuda.coordinator.effects import SendToLease, Step
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.environments.assignment import RATING, SCORE
from remuda.logbook.episode_reports import WorkerReport
from remuda.logbook.statistics import episode_statistics, merged, put_together
from remuda.training.commander.callbacks import CallbackBook
from remuda.training.commander.commander import Commander, Decision, EvaluateByTraining, Save, StartEvaluation
from remuda.training.commander.end import End
from remuda.training.commander.outcomes import Outcome, Outcomes
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.effects import Emit, LogLine, WriteLeague
from remuda.training.league import League
from remuda.training.snapshot import DispatchSnapshot, EvaluationResult, EvaluationSnapshot
from remuda.wire.messages import (
    MOST_ACTION_DIMENSIONS,
    CheckpointFile,
    CheckpointReason,
    CheckpointRecord,
    CheckpointSaved,
    Counters,
    Evaluate,
    EvaluationDone,
    Histogram,
    Opponents,
    SaveCheckpoint,
    Task,
)


class Share(NamedTuple):
    """Consecutive episodes for an evaluator."""

    first_episode: int
    episodes: int


@dataclass
class Evaluation:
    """Distributes episodes to evaluators and collects the results, every episode exactly once.

    Another evaluator plays the episodes of a lost one. A repeated result counts once.
    """

    number: int
    record: CheckpointRecord
    episodes: int
    started_s: float
    beside: list[CheckpointRecord] | None = None
    """Checkpoints of the run's remaining policies; None until every policy has a checkpoint."""
    older: list[list[CheckpointRecord]] = field(default_factory=list[list[CheckpointRecord]])
    """Older checkpoints of every policy as opponents, in self-play."""
    task: Task = field(default_factory=Task)
    """Task of the evaluation."""
    _undealt: list[Share] = field(init=False)
    dealt: dict[int, Share] = field(default_factory=dict[int, Share])
    """The shares under way, by lease of the evaluator."""
    _played: dict[int, tuple[float, int]] = field(default_factory=dict[int, tuple[float, int]])
    """Return and length of each finished episode."""
    _info: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    actions: dict[str, Histogram] = field(default_factory=dict[str, Histogram])
    """Histograms of the actions, by name; empty if they are not counted."""
    _cut: int = 0
    scores: dict[int, float] = field(default_factory=dict[int, float])
    """Of each game in a league."""

    def __post_init__(self) -> None:
        self._undealt = [Share(0, self.episodes)]

    def deal(self, evaluators: Sequence[int]) -> list[tuple[int, Share]]:
        """Give each idle evaluator (by lease) a share of the unassigned episodes."""
        idle = [lease for lease in evaluators if lease not in self.dealt]
        dealt: list[tuple[int, Share]] = []
        for position, lease in enumerate(idle):
            left = sum(share.episodes for share in self._undealt)
            if left == 0:
                break
            first, most = self._undealt[0], math.ceil(left / (len(idle) - position))
            share = self.dealt[lease] = Share(first.first_episode, min(first.episodes, most))
            rest = Share(first.first_episode + share.episodes, first.episodes - share.episodes)
            self._undealt[0:1] = [rest] if rest.episodes else []
            dealt.append((lease, share))
        return dealt

    def finished(self, done: EvaluationDone) -> bool:
        """Add the results of a share. Return False if this evaluator was not asked for them."""
        if self.dealt.get(done.lease) != (done.first_episode, len(done.returns)):
            return False
        del self.dealt[done.lease]
        self._played |= enumerate(zip(done.returns, done.lengths, strict=True), done.first_episode)
        scores = done.info.get(SCORE, ())
        self.scores |= enumerate(scores, done.first_episode) if len(scores) == len(done.returns) else ()
        self._info = merged([self._info, done.info])
        self._add_actions(done.actions)
        self._cut += done.cut
        return True

    def _add_actions(self, actions: Mapping[str, Histogram]) -> None:
        """Add the action counts of a share; counts in different buckets are left out."""
        for name, new in actions.items():
            before = self.actions.get(name)
            if before is not None:
                with contextlib.suppress(ValueError):
                    self.actions[name] = put_together(before, new)
            elif len(self.actions) < MOST_ACTION_DIMENSIONS:
                self.actions[name] = new

    def lost(self, lease: int) -> None:
        """Return the share of a lost evaluator to the unassigned episodes."""
        share = self.dealt.pop(lease, None)
        if share is not None:
            self._undealt.insert(0, share)

    @property
    def complete(self) -> bool:
        """True once every episode has been played."""
        return len(self._played) == self.episodes

    def result(self, now_s: float) -> EvaluationResult:
        """Return the result of a complete evaluation."""
        returns, lengths = zip(*map(self._played.__getitem__, range(self.episodes)), strict=True)
        took_s, info = now_s - self.started_s, self._info
        return EvaluationResult(self.record, returns, lengths, took_s, info, self._cut, self.task)

    def snapshot(self, now_s: float) -> EvaluationSnapshot:
        """Return the state for a restarted coordinator."""
        return EvaluationSnapshot(
            number=self.number,
            record=self.record,
            episodes=self.episodes,
            elapsed_s=now_s - self.started_s,
            undealt=[*self._undealt],
            dealt=[(lease, share.first_episode, share.episodes) for lease, share in self.dealt.items()],
            played=[(episode, *played) for episode, played in self._played.items()],
            info=merged([self._info]),
            actions=dict(self.actions),
            cut=self._cut,
            beside=self.beside,
            older=self.older,
            task=self.task,
            scores=[*self.scores.items()],
        )

    @classmethod
    def of(cls, known: EvaluationSnapshot, now_s: float) -> Evaluation:
        """The evaluation of a snapshot."""
        started_s = now_s - known.elapsed_s
        restored = cls(known.number, known.record, known.episodes, started_s, known.beside, known.older, known.task)
        restored._undealt = [Share(*share) for share in known.undealt]
        restored.dealt = {lease: Share(first, episodes) for lease, first, episodes in known.dealt}
        restored._played = {episode: (return_, length) for episode, return_, length in known.played}
        restored._info, restored.actions = merged([known.info]), dict(known.actions)
        restored._cut, restored.scores = known.cut, dict(known.scores)
        return restored


class EvaluationDispatch:
    """Asks the learner to save and the evaluators to play, and handles the results.

    The decision to end the run is not carried out here: the experiment reads it from `commander.ending`.
    """

    def __init__(
        self,
        experiment: str,
        commander: Commander,
        leases: LeaseBook,
        progress: ProgressRows,
        callbacks: CallbackBook,
        policy_index: int = 0,
    ) -> None:
        self._experiment, self._leases, self._policy_index = experiment, leases, policy_index
        self.outcomes = Outcomes(experiment, commander, progress, callbacks)
        self.outcomes.lent = self._lent
        self.commander = commander
        self._evaluation: Evaluation | None = None
        self._evaluations = self._saves = 0
        self.together: Sequence[EvaluationDispatch] = (self,)
        """The dispatches of all policies of the run, in the order of names."""
        self.league: League | None = None
        """The league of the run."""

    def carry_out(self, decisions: Sequence[Decision], counters: Counters, now_s: float) -> list[Step]:
        """Turn decisions into messages. End is left to the experiment."""
        steps: list[Step] = []
        for decision in decisions:
            match decision:
                case Save():
                    steps += self._request_save(decision.reason, counters)
                case StartEvaluation():
                    self._evaluations += 1
                    episodes = self.commander.config.evaluator.episodes
                    task = self.commander.curriculum.task
                    self._evaluation = Evaluation(self._evaluations, decision.record, episodes, now_s, task=task)
                    steps += self.deal()
                case EvaluateByTraining():
                    steps += self._follow(self.outcomes.evaluated_by_training(decision.record), counters, now_s)
                case End():
                    pass
        return steps

    def begin_tasks(self, env_step: int) -> list[Step]:
        """Begin the due task, or several in a row. Policies begin tasks in turn, the first policy first."""
        together, steps = [each.commander for each in self.together], list[Step]()
        while effects := self.outcomes.next_task(together, env_step):
            steps += effects
        return steps

    def saved(self, message: CheckpointSaved, counters: Counters, now_s: float) -> list[Step]:
        """Handle a save by the learner. After a restart the message may come twice."""
        if not self._is_news(message):
            return []
        reset = self.commander.reset
        steps = self._follow(self.outcomes.saved(message.reason, message.record), counters, now_s)
        if self.league is None:
            return steps + self.send_opponents()
        if message.reason == "reset" and reset is not None:
            line = self.league.begun_again(self._policy_index, message.record, *reset)
            steps += [LogLine(self._experiment, line), *self.write_league()]
        return steps

    def send_opponents(self, collectors: Iterable[int] | None = None) -> list[Step]:
        """Send collectors (leases; None: all) the checkpoints of all policies that play in training, in self-play."""
        records = [each.commander.opponents for each in self.together]
        records = records if self.league is None else [*self.league.opponents]
        weights = [] if self.league is None else self.league.all_weights()
        if not weights and not any(records):
            return []
        pool = [[_file_of(record) for record in its] for its in records]
        leases = [one.number for one in self._leases.ready("collector")] if collectors is None else collectors
        return [SendToLease(lease, Opponents(lease, pool, weights)) for lease in leases]

    def _is_news(self, message: CheckpointSaved) -> bool:
        """True for the answer to the newest request, or to an earlier one with a newer checkpoint: the last save may be
        requested while another is under way."""
        if message.request == self._saves:
            return self.commander.saving is not None
        last = self.commander.last_record
        return last is None or message.record.train_iter > last.train_iter

    def played(self, message: EvaluationDone, worker: str, counters: Counters, now_s: float) -> list[Step]:
        """Handle the results of a share. The last share completes the evaluation."""
        evaluation = self._evaluation
        if evaluation is None or evaluation.number != message.evaluation or not evaluation.finished(message):
            return []
        steps: list[Step] = [Emit(self._experiment, _evaluator_report(message, worker, evaluation.record))]
        if not evaluation.complete:
            return steps + self.deal()
        self._evaluation = None
        result = evaluation.result(now_s)
        if self.league is not None:  # rate the checkpoint
            agents, own = len(self.commander.config.env.agents), (self._policy_index, evaluation.record)
            judged = self.league.evaluated(*own, evaluation.older, evaluation.scores, agents)
            self.commander.reset = self.commander.reset or judged.reset
            result = replace(result, info={**result.info, RATING: judged.interval})
            steps += [LogLine(self._experiment, line) for line in judged.lines]
            steps += self.write_league() + self.send_opponents()
        outcome = self.outcomes.evaluated(result, actions=evaluation.actions)
        return steps + self._follow(outcome, counters, now_s)

    def write_league(self) -> list[Step]:
        """Write the league, if any, to league.json."""
        league = self.league
        return [] if league is None or not league.has_begun else [WriteLeague(self._experiment, league.document())]

    def _follow(self, outcome: Outcome, counters: Counters, now_s: float) -> list[Step]:
        return [*outcome.effects, *self.carry_out(outcome.decisions, counters, now_s)]

    def deal(self) -> list[Step]:
        """Give idle evaluators their share of the current evaluation."""
        evaluation = self._evaluation
        if evaluation is None or not self._has_company(evaluation):
            return []
        idle = [lease.number for lease in self._leases.ready("evaluator")]
        return [self._send_evaluate(evaluation, lease, share) for lease, share in evaluation.deal(idle)]

    def _has_company(self, evaluation: Evaluation) -> bool:
        """True once every policy has a checkpoint to play with; its newest plays."""
        if evaluation.beside is None:
            commanders = [each.commander for each in self.together]
            newest = [evaluation.record if own is self.commander else own.last_record for own in commanders]
            playing = [record for record in newest if record is not None]
            if len(playing) < len(commanders):
                return False
            evaluation.beside = [*playing[: self._policy_index], *playing[self._policy_index + 1 :]]
            older = [own.older_than(record) for own, record in zip(commanders, playing, strict=True)]
            older = older if self.league is None else [*self.league.opponents]
            evaluation.older = [[*records] for records in older] if any(older) else []
        return True

    def _lent(self) -> tuple[int, ...]:
        """Checkpoints of this policy, by train_iter, in use by evaluations of all policies."""
        lent = [train_iter for each in self.together for train_iter in each.plays_with(self._policy_index)]
        return (*lent, *(() if self.league is None else self.league.in_use(self._policy_index)))

    def plays_with(self, policy_index: int) -> list[int]:
        """Checkpoints of this policy, by train_iter, that play beside or against the evaluated checkpoint."""
        evaluation = self._evaluation
        if evaluation is None or evaluation.beside is None:
            return []
        records = [*evaluation.older[policy_index]] if evaluation.older else []
        if policy_index != self._policy_index:
            records.append(evaluation.beside[policy_index if policy_index < self._policy_index else policy_index - 1])
        return [record.train_iter for record in records]

    def evaluator_gone(self, lease: int) -> list[Step]:
        """Let other evaluators play the share of an ended lease."""
        if self._evaluation is not None:
            self._evaluation.lost(lease)
        return self.deal()

    def use_newest_checkpoint(self, counters: Counters, now_s: float) -> list[Step]:
        """Use the newest checkpoint as the last, since no learner is ready to save another."""
        record = self.commander.last_record
        kept = "there is no checkpoint" if record is None else f"the last checkpoint is {record.file}"
        said = LogLine(self._experiment, f"no learner is ready to save once more: {kept}", "warning")
        return [said, *self.carry_out(self.commander.use_newest_checkpoint(), counters, now_s)]

    @property
    def is_saving(self) -> bool:
        """True while a present learner has not answered a request to save."""
        learner = self._leases.learner_of(self._policy_index)
        return self.commander.saving is not None and learner is not None and learner.ready and not learner.draining

    @property
    def lacks_evaluator(self) -> bool:
        """True if a checkpoint must be played and no evaluator is present."""
        return self.commander.evaluating is not None and not self._leases.count("evaluator")

    def repeat(self, lease: Lease, counters: Counters) -> list[Step]:
        """Repeat the possibly lost requests to this worker; a repeated request is carried out once."""
        if lease.role == "learner":
            saving = self.commander.saving
            return [] if saving is None else self._request_save(saving, counters, again=True)
        if self._evaluation is None or (share := self._evaluation.dealt.get(lease.number)) is None:
            return []
        return [self._send_evaluate(self._evaluation, lease.number, share)]

    def snapshot(self, now_s: float) -> DispatchSnapshot:
        """Return the state for a restarted coordinator."""
        evaluation = None if self._evaluation is None else self._evaluation.snapshot(now_s)
        return DispatchSnapshot(self.commander.snapshot(), evaluation, self._evaluations, self._saves)

    def restore(self, snapshot: DispatchSnapshot, now_s: float) -> None:
        """Continue from a snapshot."""
        self.commander.restore(snapshot.commander)
        self._evaluation = None if snapshot.evaluation is None else Evaluation.of(snapshot.evaluation, now_s)
        self._evaluations, self._saves = snapshot.evaluations, snapshot.saves

    def _send_evaluate(self, evaluation: Evaluation, lease: int, share: Share) -> SendToLease:
        record, others = evaluation.record, [_file_of(other) for other in evaluation.beside or ()]
        older = [[_file_of(record) for record in records] for records in evaluation.older]
        checkpoint = record.file, record.sha256, record.train_iter, record.env_step
        episodes, index, task = (share.first_episode, share.episodes), self._policy_index, evaluation.task
        play = Evaluate(lease, evaluation.number, *checkpoint, *episodes, index, others, older, task)
        return SendToLease(lease, play)

    def _request_save(self, reason: CheckpointReason, counters: Counters, *, again: bool = False) -> list[Step]:
        """Request a checkpoint, or repeat the request. The next learner is asked once it is ready."""
        learner = self._leases.learner_of(self._policy_index)
        if learner is None or not learner.ready:
            return []
        self._saves += not again
        best, reset = self.commander.best, self.commander.reset
        reward = None if best is None else best.reward_mean
        weights = None if reset is None or reason != "reset" else _file_of(reset[0])
        message = SaveCheckpoint(learner.number, self._saves, reason, counters, reward, weights)
        return [SendToLease(learner.number, message)]


def _file_of(record: CheckpointRecord) -> CheckpointFile:
    return CheckpointFile(record.file, record.sha256)


def _evaluator_report(message: EvaluationDone, worker: str, record: CheckpointRecord) -> WorkerReport:
    """Return the report about the episodes of an evaluator."""
    statistics = episode_statistics(message.returns, message.lengths, message.info)
    return WorkerReport(
        train_iter=record.train_iter,
        env_step=record.env_step,
        role="evaluator",
        worker=worker,
        episode_count=len(message.returns),
        step_count=sum(message.lengths),
        duration_s=message.duration_s,
        reward_mean=statistics.pop("reward_mean"),
        reward_std=statistics.pop("reward_std"),
        statistics=statistics,
    )
