"""Carries out the commander's decisions in parallel mode: sends messages to workers and handles their answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from remuda.coordinator.effects import SendToLease, Step
from remuda.coordinator.experiment.evaluation import Evaluation, Share
from remuda.coordinator.experiment.worker_reports import evaluator_report
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.training.commander.callbacks import CallbackBook
from remuda.training.commander.commander import Commander, Decision, EvaluateByTraining, Save, StartEvaluation
from remuda.training.commander.end import End
from remuda.training.commander.outcomes import Outcome, Outcomes
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.effects import Emit, LogLine
from remuda.training.snapshot import DispatchSnapshot
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
    ) -> None:
        self._experiment = experiment
        self._leases = leases
        self.outcomes = Outcomes(experiment, commander, progress, callbacks)
        self.commander = commander
        self._evaluation: Evaluation | None = None
        self._evaluations = 0
        self._saves = 0
        self._place = 0
        """Among the policies of the run."""
        self._together: tuple[EvaluationDispatch, ...] = (self,)
        self.outcomes.lent = self._lent

    def play_beside(self, together: Sequence[EvaluationDispatch]) -> None:
        """Several policies play together; `together` are those of all, in the order of their names."""
        self._together, self._place = tuple(together), together.index(self)

    def carry_out(self, decisions: Sequence[Decision], counters: Counters, now_s: float) -> list[Step]:
        """Turn decisions into messages. End is left to the experiment."""
        steps: list[Step] = []
        for decision in decisions:
            match decision:
                case Save():
                    steps += self._ask_to_save(decision, counters)
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
        """Go on to the task that is due; a step may have been that of several. Several policies do so one after the
        other, the first of all first."""
        together, steps = [each.commander for each in self._together], list[Step]()
        while effects := self.outcomes.next_task(together, env_step):
            steps += effects
        return steps

    def saved(self, message: CheckpointSaved, counters: Counters, now_s: float) -> list[Step]:
        """The learner has saved what it was asked to save. It may say so twice, after a restart."""
        if not self._is_news(message):
            return []
        steps = self._follow(self.outcomes.saved(message.reason, message.record), counters, now_s)
        return steps + self.tell_opponents([lease.number for lease in self._leases.ready("collector")])

    def tell_opponents(self, collectors: Iterable[int]) -> list[Step]:
        """In self-play: tell these collectors (leases) which checkpoints play in training."""
        files = [_file_of(record) for record in self.commander.opponents]
        return [SendToLease(lease, Opponents(lease, files, self._place)) for lease in collectors] if files else []

    def _is_news(self, message: CheckpointSaved) -> bool:
        """The reason of the newest request, or of one before it: the last save may be requested while another is under
        way."""
        if message.request == self._saves:
            return self.commander.saving is not None
        last = self.commander.last_record
        return last is None or message.record.train_iter > last.train_iter

    def played(self, message: EvaluationDone, worker: str, counters: Counters, now_s: float) -> list[Step]:
        """An evaluator has played its share. With the last share the evaluation is complete."""
        evaluation = self._evaluation
        if evaluation is None or evaluation.number != message.evaluation:
            return []
        share = message.first_episode, message.returns, message.lengths
        played = evaluation.finished(message.lease, *share, info=message.info, actions=message.actions, cut=message.cut)
        if not played:
            return []
        steps: list[Step] = [Emit(self._experiment, evaluator_report(message, worker, evaluation.record))]
        if not evaluation.complete:
            return steps + self.deal()
        self._evaluation = None
        result = evaluation.result(now_s)
        outcome = self.outcomes.evaluated(result, actions=evaluation.actions)
        return steps + self._follow(outcome, counters, now_s)

    def filmed(self, message: EvaluationFilmed) -> list[Step]:
        """An evaluator has filmed what it has played."""
        return [*self.outcomes.filmed(message.film, train_iter=message.train_iter, env_step=message.env_step)]

    def _follow(self, outcome: Outcome, counters: Counters, now_s: float) -> list[Step]:
        return [*outcome.effects, *self.carry_out(outcome.decisions, counters, now_s)]

    def deal(self) -> list[Step]:
        """Give idle evaluators their share of the evaluation under way."""
        evaluation = self._evaluation
        if evaluation is None or not self._has_company(evaluation):
            return []
        idle = [lease.number for lease in self._leases.ready("evaluator")]
        return [self._tell_to_play(evaluation, lease, share) for lease, share in evaluation.deal(idle)]

    def _has_company(self, evaluation: Evaluation) -> bool:
        """Whether each other policy has a checkpoint to play with: its newest does."""
        if evaluation.beside is None:
            commanders = [each.commander for each in self._together]
            newest = [evaluation.record if own is self.commander else own.last_record for own in commanders]
            playing = [record for record in newest if record is not None]
            if len(playing) < len(commanders):
                return False
            evaluation.beside = (*playing[: self._place], *playing[self._place + 1 :])
            older = [own.older_than(record) for own, record in zip(commanders, playing, strict=True)]
            evaluation.older = tuple(older) if any(older) else ()
        return True

    def _lent(self) -> tuple[int, ...]:
        """The checkpoints of this policy, by train_iter, that evaluations of all policies play with."""
        return tuple(train_iter for each in self._together for train_iter in each.plays_with(self._place))

    def plays_with(self, place: int) -> list[int]:
        """The checkpoints of the policy at a place, by train_iter, that the evaluation under way needs besides the one
        that is evaluated."""
        evaluation = self._evaluation
        if evaluation is None or evaluation.beside is None:
            return []
        records = list(evaluation.older[place]) if evaluation.older else []
        if place != self._place:
            records.append(evaluation.beside[place if place < self._place else place - 1])
        return [record.train_iter for record in records]

    def evaluator_gone(self, lease: int) -> list[Step]:
        """The evaluator is gone: others play its share."""
        if self._evaluation is not None:
            self._evaluation.lost(lease)
        return self.deal()

    def use_newest_checkpoint(self, counters: Counters, now_s: float) -> list[Step]:
        """No learner is ready to save the last checkpoint: the newest checkpoint is used as the last one."""
        record = self.commander.last_record
        kept = "there is no checkpoint" if record is None else f"the last checkpoint is {record.file}"
        said = LogLine(self._experiment, f"no learner is ready to save once more: {kept}", "warning")
        return [said, *self.carry_out(self.commander.use_newest_checkpoint(), counters, now_s)]

    @property
    def lacks_evaluator(self) -> bool:
        """A checkpoint must be played, and no evaluator is there."""
        return self.commander.evaluating is not None and not self._leases.count("evaluator")

    def repeat(self, lease: Lease, counters: Counters) -> list[Step]:
        """Repeat the requests that this worker has not answered: they may have been lost with an earlier coordinator.

        A request that arrives twice is carried out once.
        """
        if lease.role == "learner":
            saving = self.commander.saving
            return [] if saving is None else [self._tell_to_save(saving, counters)]
        share = None if self._evaluation is None else self._evaluation.share_of(lease.number)
        if self._evaluation is None or share is None:
            return []
        return [self._tell_to_play(self._evaluation, lease.number, share)]

    def snapshot(self, now_s: float) -> DispatchSnapshot:
        """What a restarted coordinator needs."""
        evaluation = None if self._evaluation is None else self._evaluation.snapshot(now_s)
        return DispatchSnapshot(self.commander.snapshot(), evaluation, self._evaluations, self._saves)

    def restore(self, snapshot: DispatchSnapshot, now_s: float) -> None:
        """Continue from a snapshot."""
        self.commander.restore(snapshot.commander)
        self._evaluation = None if snapshot.evaluation is None else Evaluation.of(snapshot.evaluation, now_s)
        self._evaluations, self._saves = snapshot.evaluations, snapshot.saves

    def _tell_to_play(self, evaluation: Evaluation, lease: int, share: Share) -> SendToLease:
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
                place=self._place,
                others=[_file_of(other) for other in evaluation.beside or ()],
                older=[[_file_of(record) for record in records] for records in evaluation.older],
                task=evaluation.task,
            ),
        )

    def _ask_to_save(self, save: Save, counters: Counters) -> list[Step]:
        learner = self._leases.learner
        if learner is None or not learner.ready:
            return []  # asked again when the next learner is ready
        self._saves += 1
        return [self._tell_to_save(save.reason, counters)]

    def _tell_to_save(self, reason: CheckpointReason, counters: Counters) -> SendToLease:
        learner = self._leases.learner
        assert learner is not None, "somebody is there to be told"
        best = self.commander.best
        reward = None if best is None else best.reward_mean
        return SendToLease(learner.number, SaveCheckpoint(learner.number, self._saves, reason, counters, reward))


def _file_of(record: CheckpointRecord) -> CheckpointFile:
    return CheckpointFile(record.file, record.sha256)
