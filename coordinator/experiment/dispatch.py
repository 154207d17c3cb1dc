"""Saves by the learner and evaluations by the evaluators: requests, and what follows from their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from remuda.coordinator.effects import SendToLease, Step
from remuda.coordinator.experiment.evaluation import Evaluation, Share
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.environments.assignment import RATING
from remuda.logbook.episode_reports import WorkerReport
from remuda.logbook.statistics import episode_statistics
from remuda.training.commander.callbacks import CallbackBook
from remuda.training.commander.commander import Commander, Decision, EvaluateByTraining, Save, StartEvaluation
from remuda.training.commander.end import End
from remuda.training.commander.outcomes import Outcome, Outcomes
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.effects import Emit, LogLine, WriteLeague
from remuda.training.league import League
from remuda.training.snapshot import DispatchSnapshot, EvaluationResult, LeagueSnapshot
from remuda.wire.messages import (
    CheckpointFile,
    CheckpointReason,
    CheckpointRecord,
    CheckpointSaved,
    Counters,
    Evaluate,
    EvaluationDone,
    EvaluationFilmed,
    Opponents,
    SaveCheckpoint,
)


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
        self._experiment = experiment
        self._leases = leases
        self.outcomes = Outcomes(experiment, commander, progress, callbacks)
        self.commander = commander
        self._evaluation: Evaluation | None = None
        self._evaluations = 0
        self._saves = 0
        self._policy_index = policy_index
        self.together: Sequence[EvaluationDispatch] = (self,)
        """The dispatches of all policies of the run, in the order of names."""
        self.league: League | None = None
        """The league of the run."""
        self.outcomes.lent = self._lent

    def carry_out(self, decisions: Sequence[Decision], counters: Counters, now_s: float) -> list[Step]:
        """Turn decisions into messages. End is left to the experiment."""
        steps: list[Step] = []
        for decision in decisions:
            match decision:
                case Save():
                    steps += self._request_save(decision, counters)
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
        if self.league is not None:
            if message.reason == "reset" and reset is not None:
                steps += self._begun_again(self.league, message.record, *reset)
            return steps
        return steps + self.send_opponents()

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
        if evaluation is None or evaluation.number != message.evaluation:
            return []
        share = message.first_episode, message.returns, message.lengths
        played = evaluation.finished(message.lease, *share, info=message.info, actions=message.actions, cut=message.cut)
        if not played:
            return []
        steps: list[Step] = [Emit(self._experiment, _evaluator_report(message, worker, evaluation.record))]
        if not evaluation.complete:
            return steps + self.deal()
        self._evaluation = None
        result = evaluation.result(now_s)
        if self.league is not None:
            result, judged = self._judged(self.league, evaluation, result)
            steps += judged
        outcome = self.outcomes.evaluated(result, actions=evaluation.actions)
        return steps + self._follow(outcome, counters, now_s)

    def _judged(
        self, league: League, evaluation: Evaluation, result: EvaluationResult
    ) -> tuple[EvaluationResult, list[Step]]:
        """Rate the checkpoint of a complete evaluation; return the result with the rating."""
        agents = len(self.commander.config.env.agents)
        judged = league.evaluated(self._policy_index, evaluation.record, evaluation.older, evaluation.scores, agents)
        self.commander.reset = self.commander.reset or judged.reset
        result = replace(result, info={**result.info, RATING: judged.interval})
        return result, [
            *(LogLine(self._experiment, line) for line in judged.lines),
            *self.write_league(),
            *self.send_opponents(),
        ]

    def _begun_again(
        self, league: League, record: CheckpointRecord, weights: CheckpointRecord, reason: str
    ) -> list[Step]:
        line = league.begun_again(self._policy_index, record, weights, reason)
        return [LogLine(self._experiment, line), *self.write_league()]

    def write_league(self) -> list[Step]:
        """Write the league, if any, to league.json."""
        if self.league is None or not self.league.has_begun:
            return []
        return [WriteLeague(self._experiment, self.league.document())]

    def filmed(self, message: EvaluationFilmed) -> list[Step]:
        """Handle a film of an evaluation."""
        return [*self.outcomes.filmed(message.film, train_iter=message.train_iter, env_step=message.env_step)]

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
            evaluation.beside = (*playing[: self._policy_index], *playing[self._policy_index + 1 :])
            older = [own.older_than(record) for own, record in zip(commanders, playing, strict=True)]
            older = older if self.league is None else [*self.league.opponents]
            evaluation.older = tuple(older) if any(older) else ()
        return True

    def _lent(self) -> tuple[int, ...]:
        """Checkpoints of this policy, by train_iter, in use by evaluations of all policies."""
        lent = [train_iter for each in self.together for train_iter in each.plays_with(self._policy_index)]
        return (*lent, *(() if self.league is None else self.league.in_use(self._policy_index)))

    def plays_with(self, policy_index: int) -> list[int]:
        """Checkpoints of this policy, by train_iter, that the current evaluation needs besides the evaluated
        checkpoint."""
        evaluation = self._evaluation
        if evaluation is None or evaluation.beside is None:
            return []
        records = list(evaluation.older[policy_index]) if evaluation.older else []
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
    def has_ready_learner(self) -> bool:
        """True if the policy's learner is present and can save."""
        learner = self._leases.learner_of(self._policy_index)
        return learner is not None and learner.ready and not learner.draining

    @property
    def lacks_evaluator(self) -> bool:
        """True if a checkpoint must be played and no evaluator is present."""
        return self.commander.evaluating is not None and not self._leases.count("evaluator")

    def repeat(self, lease: Lease, counters: Counters) -> list[Step]:
        """Repeat the unanswered requests to this worker, possibly lost by an earlier coordinator.

        Workers carry out a repeated request once.
        """
        if lease.role == "learner":
            saving = self.commander.saving
            return [] if saving is None else [self._send_save(saving, counters)]
        share = None if self._evaluation is None else self._evaluation.share_of(lease.number)
        if self._evaluation is None or share is None:
            return []
        return [self._send_evaluate(self._evaluation, lease.number, share)]

    def snapshot(self, now_s: float) -> DispatchSnapshot:
        """Return the state for a restarted coordinator."""
        evaluation = None if self._evaluation is None else self._evaluation.snapshot(now_s)
        return DispatchSnapshot(self.commander.snapshot(), evaluation, self._evaluations, self._saves)

    def league_snapshot(self) -> LeagueSnapshot | None:
        """Return the state of the league, if any."""
        return None if self.league is None else self.league.snapshot()

    def restore_league(self, snapshot: LeagueSnapshot | None) -> None:
        """Continue the league from the snapshot of the first policy."""
        if self.league is not None and snapshot is not None:
            self.league.restore(snapshot)

    def restore(self, snapshot: DispatchSnapshot, now_s: float) -> None:
        """Continue from a snapshot."""
        self.commander.restore(snapshot.commander)
        self._evaluation = None if snapshot.evaluation is None else Evaluation.of(snapshot.evaluation, now_s)
        self._evaluations, self._saves = snapshot.evaluations, snapshot.saves

    def _send_evaluate(self, evaluation: Evaluation, lease: int, share: Share) -> SendToLease:
        return SendToLease(
            lease,
            Evaluate(
                lease=lease,
                evaluation=evaluation.number,
                checkpoint=evaluation.record.file,
                sha256=evaluation.record.sha256,
                train_iter=evaluation.record.train_iter,
                env_step=evaluation.record.env_step,
                first_episode=share.first_episode,
                episodes=share.episodes,
                policy_index=self._policy_index,
                others=[_file_of(other) for other in evaluation.beside or ()],
                older=[[_file_of(record) for record in records] for records in evaluation.older],
                task=evaluation.task,
            ),
        )

    def _request_save(self, save: Save, counters: Counters) -> list[Step]:
        learner = self._leases.learner_of(self._policy_index)
        if learner is None or not learner.ready:
            return []  # asked again when the next learner is ready
        self._saves += 1
        return [self._send_save(save.reason, counters)]

    def _send_save(self, reason: CheckpointReason, counters: Counters) -> SendToLease:
        learner = self._leases.learner_of(self._policy_index)
        assert learner is not None, "somebody is there to be told"
        best, reset = self.commander.best, self.commander.reset
        reward = None if best is None else best.reward_mean
        weights = None if reset is None or reason != "reset" else _file_of(reset[0])
        message = SaveCheckpoint(learner.number, self._saves, reason, counters, reward, weights)
        return SendToLease(learner.number, message)


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
