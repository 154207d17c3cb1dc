"""One experiment in the coordinator: its workers, its experience, its commander, from queue to end.

Pure: every method takes what happened and a clock reading and returns steps to be taken (see effects.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.commander import Commander, Decision, End, Save, StartEvaluation
from remuda.coordinator.credit import CreditBook
from remuda.coordinator.effects import Answer, CloseRun, DeleteChunks, Emit, RecordCheckpoint, RecordReward, Release
from remuda.coordinator.effects import Say, Step, Tell, WriteProgress
from remuda.coordinator.evaluation import Evaluation
from remuda.coordinator.experience import Experience
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.coordinator.progress import ProgressRows
from remuda.coordinator.rate import Rate
from remuda.coordinator.reporting import collector_report, evaluation_report, evaluator_report, verdict_line
from remuda.coordinator.requests import RequestQueue
from remuda.coordinator.scheduler import Demand
from remuda.policy.schedules import exploration
from remuda.wire.messages import (
    Assign,
    Batches,
    BatchRequest,
    CheckpointSaved,
    ChunkAccepted,
    ChunkReady,
    CollectorReport,
    Counters,
    Credit,
    Drain,
    Drained,
    Evaluate,
    EvaluationDone,
    ExperimentState,
    ExperimentStatus,
    IndexedChunk,
    LearnerReport,
    PolicyAvailable,
    PolicyPublished,
    PolicyRef,
    Ready,
    Role,
    SaveCheckpoint,
    StopTraining,
    WorkerFailed,
)

FAILURES_IN_A_ROW = 5
"""Worker failures without a single chunk counted in between after which an experiment is given up."""
STEP_DEADLINE_S = 60.0
"""Longest each step of an ending may take: draining collectors, the final save, letting go. An evaluation may take
longer as long as it moves; see EVALUATION_DEADLINE_S."""
EVALUATION_DEADLINE_S = 600.0


@dataclass(frozen=True)
class Identity:
    """What an experiment is called and where it lives."""

    id: str
    name: str
    run_dir: str
    policy_file: str
    priority: int
    submitted: int


class Experiment:
    """Holds what the coordinator knows of one experiment and decides its next steps."""

    def __init__(self, identity: Identity, config: ExperimentConfig, experience: Experience, now_s: float) -> None:
        self.identity = identity
        self.state: ExperimentState = "queued"
        self.reason: str | None = None
        self.waiting_for: str | None = None
        self._config = config
        self._config_json = config.model_dump_json()
        self._experience = experience
        self._commander = Commander(config)
        self._credit = CreditBook(config.collector.chunk_env_steps)
        self._progress = ProgressRows(config)
        self._leases = LeaseBook()
        self._evaluation: Evaluation | None = None
        self._evaluations = 0
        self._saves = 0
        self._requests = RequestQueue()
        self._policy = PolicyRef()
        self._epoch = 0
        self._train_iter = 0
        self._served_iters = 0
        """Updates the learner will have done once it has used every batch it was sent."""
        self._started_s = now_s
        self._ended_wall_s: float | None = None
        self._failures = 0
        self._stage = "work"
        self._stage_deadline_s = 0.0
        self._env_rate = Rate()
        self._train_rate = Rate()

    # --- what others ask of it ---

    @property
    def over(self) -> bool:
        """Nothing more will happen."""
        return self.state in ("finished", "stopped", "failed")

    @property
    def leases(self) -> LeaseBook:
        """Its workers."""
        return self._leases

    def demand(self) -> Demand | None:
        """Workers it still needs; None when it wants none."""
        if self.over or self._commander.ending is not None:
            return None
        wanted: dict[Role, int] = {
            "learner": 1,
            "collector": self._config.collector.count,
            "evaluator": self._config.evaluator.count,
        }
        missing = {role: count - len(self._leases.of(role)) for role, count in wanted.items()}
        if not any(count > 0 for count in missing.values()):
            return None
        minimum: dict[Role, int] = (
            {"learner": 1, "collector": 1, "evaluator": 1} if self.state == "queued" else {}
        )
        return Demand(self.identity.id, self.identity.priority, self.identity.submitted, minimum, missing)

    def counters(self, now_s: float) -> Counters:
        """The one set of counters, as of now."""
        return Counters(
            env_step=self._experience.env_step,
            train_iter=self._train_iter,
            episode=self._experience.episode,
            policy_version=self._policy.version,
            wall_s=self._wall_s(now_s),
        )

    def status(self, now_s: float) -> ExperimentStatus:
        """As `remuda status` shows it."""
        last, best = self._commander.last, self._commander.best
        return ExperimentStatus(
            id=self.identity.id,
            name=self.identity.name,
            state=self.state,
            reason=self.reason,
            run_dir=self.identity.run_dir,
            env_step=self._experience.env_step,
            train_iter=self._train_iter,
            episode=self._experience.episode,
            policy_version=self._policy.version,
            wall_s=self._wall_s(now_s),
            last_return=None if last is None else last.reward_mean,
            best_return=None if best is None else best.reward_mean,
            env_steps_per_s=self._env_rate.per_s(),
            train_iters_per_s=self._train_rate.per_s(),
            policy_lag=self._experience.policy_lag(self._policy),
            samples_per_insert=self._experience.samples_per_insert,
            waiting_for=self.waiting_for,
        )

    # --- workers come and go ---

    def assign(self, number: int, role: Role, worker: str, now_s: float) -> list[Step]:
        """A worker was drawn from the herd for it."""
        lease = self._leases.open(number, role, worker)
        if self.state == "queued":
            self.state = "starting"
            self.waiting_for = None
            self._started_s = now_s
        checkpoint = None
        replay: list[IndexedChunk] = []
        steps: list[Step] = []
        if role == "learner":
            self._epoch += 1
            replay, deletable = self._experience.replay_for_new_learner()
            steps += self._delete(deletable)
            record = self._commander.last_record
            self._train_iter = self._served_iters = 0 if record is None else record.train_iter
            checkpoint = None if record is None else f"{self.identity.run_dir}/ckpt/{record.file}"
        message = Assign(
            lease=number,
            experiment=self.identity.id,
            name=self.identity.name,
            run_dir=self.identity.run_dir,
            config_json=self._config_json,
            index=lease.index,
            policy_file=self.identity.policy_file,
            epoch=self._epoch,
            checkpoint=checkpoint,
            exploration=self._exploration(),
            replay=replay,
        )
        return [*steps, Tell(number, message), self._say(f"{role} {worker} joins as {role} {lease.index}")]

    def ready(self, message: Ready, now_s: float) -> list[Step]:
        """A worker has built what it works with."""
        lease = self._leases.find(message.lease)
        if lease is None:
            return []
        lease.ready = True
        if lease.role == "learner":
            return self._learner_ready(now_s)
        if lease.role == "collector":
            if self._collecting:
                self._credit.open(lease.number)
                return self._extend_credit()
            return []
        return self._deal_evaluation()

    def _learner_ready(self, now_s: float) -> list[Step]:
        if self.state == "starting":
            self.state = "running"
            steps = self._carry_out(self._commander.started(), now_s)
        else:
            steps = self._carry_out(self._commander.retry_save(), now_s)
        for lease in self._leases.ready("collector"):
            self._credit.open(lease.number)
        return steps + self._extend_credit()

    def worker_gone(self, number: int, why: str, now_s: float) -> list[Step]:
        """A worker was lost, left, or started a new life: its lease is over."""
        lease = self._leases.close(number)
        if lease is None:
            return []
        self._forget(lease)
        steps: list[Step] = []
        if not self.over:
            steps.append(self._say(f"{lease.role} {lease.worker} is gone: {why}", "warning"))
        return steps + self._deal_evaluation() + self._extend_credit() + self.tick(now_s)

    def failed(self, message: WorkerFailed, now_s: float) -> list[Step]:
        """A worker reports an exception that ended its work; it exits by itself."""
        lease = self._leases.find(message.lease)
        if lease is None:
            return []
        self._failures += 1
        steps: list[Step] = [
            self._say(f"{lease.role} {lease.worker} failed: {message.error}\n{message.traceback}", "error")
        ]
        steps += self.worker_gone(message.lease, "it failed", now_s)
        if self._failures >= FAILURES_IN_A_ROW:
            text = f"workers failed {self._failures} times in a row, the last with: {message.error}"
            steps += self._carry_out(self._commander.end(End(text, text), skip_final_evaluation=True), now_s)
        return steps

    def drained(self, message: Drained, now_s: float) -> list[Step]:
        """A worker has ended its lease cleanly."""
        lease = self._leases.close(message.lease)
        if lease is None:
            return []
        self._forget(lease)
        return [Release(message.lease), *self.tick(now_s)]

    def _forget(self, lease: Lease) -> None:
        self._credit.close(lease.number)
        if lease.role == "learner":
            self._requests = RequestQueue()
        if self._evaluation is not None:
            self._evaluation.lost(lease.number)

    # --- experience ---

    def chunk(self, message: ChunkReady, now_s: float) -> list[Step]:
        """A collector announces a chunk."""
        if self.over:
            return [self._chunk_answer(message, rejected=f"the experiment is over ({self.state})")]
        accepted = self._experience.accept(message.meta)
        steps: list[Step] = []
        if accepted.fresh:
            self._failures = 0
            self._credit.arrived(message.lease, message.meta.env_steps)
            self._progress.chunk(message.meta)
            self._env_rate.note(self._experience.env_step, now_s)
        if accepted.rejected is not None:
            steps.append(self._say(f"chunk {message.meta.file} refused: {accepted.rejected}", "warning"))
        grown = set(self._credit.extend(self._allowance()))
        grown.discard(message.lease)
        steps.append(self._chunk_answer(message, rejected=accepted.rejected))
        steps += [Tell(lease, self._credit_message(lease)) for lease in sorted(grown)]
        steps += self._delete(accepted.deletable)
        return steps + self._serve() + self._progressed(now_s)

    def batches_wanted(self, message: BatchRequest, now_s: float) -> list[Step]:
        """The learner gives priorities back and asks for the next batches."""
        learner = self._leases.learner
        if learner is None or learner.number != message.lease:
            return []
        self._trained(message.train_iter, now_s)
        self._experience.update_priorities(message.priority_rows, message.priorities)
        self._requests.add(message)
        steps = self._delete(self._experience.confirm_loaded(message.loaded_row))
        return steps + self._serve() + self._progressed(now_s)

    def _serve(self) -> list[Step]:
        """Answer the learner's requests while there is enough to sample from."""
        steps: list[Step] = []
        while (request := self._requests.next) is not None and self._commander.ending is None:
            batches = min(request.batches, self._experience.sampleable_batches(request.batch_size))
            if self._config.stop.max_train_iters is not None:
                batches = min(batches, self._config.stop.max_train_iters - self._served_iters)
            if batches < 1:
                break
            self._requests.answered()
            self._served_iters += batches
            steps.append(Tell(request.lease, self._answer_request(request, batches)))
        return steps + self._extend_credit() if steps else []

    def _answer_request(self, request: BatchRequest, batches: int) -> Batches:
        sampled = self._experience.sample(batches, request.batch_size, request.train_iter)
        return Batches(
            lease=request.lease,
            request=request.request,
            rows=sampled.rows,
            weights=sampled.weights,
            new_chunks=self._experience.hand_out_new(),
            first_live_row=self._experience.first_live_row,
            counters=Counters(
                env_step=self._experience.env_step,
                train_iter=request.train_iter,
                episode=self._experience.episode,
                policy_version=self._policy.version,
            ),
        )

    def published(self, message: PolicyPublished) -> list[Step]:
        """The learner has rewritten the policy file."""
        if message.policy <= self._policy:
            return []
        self._policy = message.policy
        return [
            Tell(lease.number, PolicyAvailable(lease.number, message.policy)) for lease in self._leases.ready("collector")
        ]

    # --- checkpoints and evaluations ---

    def checkpoint_saved(self, message: CheckpointSaved, now_s: float) -> list[Step]:
        """The learner has saved what it was asked to save."""
        self._train_iter = max(self._train_iter, message.record.train_iter)
        decisions = self._commander.saved(message.reason, message.record)
        record = RecordCheckpoint(
            self.identity.id,
            message.record,
            keep=self._config.checkpoint.keep,
            interrupted=message.reason == "final" and self._interrupted,
            in_use=self._commander.in_use,
        )
        return [record, *self._carry_out(decisions, now_s), *self.tick(now_s)]

    def evaluation_done(self, message: EvaluationDone, now_s: float) -> list[Step]:
        """An evaluator has played its share."""
        evaluation = self._evaluation
        if evaluation is None or evaluation.number != message.evaluation:
            return []
        if not evaluation.finished(message.lease, message.first_episode, message.returns, message.lengths):
            return []
        lease = self._leases.find(message.lease)
        worker = "unknown" if lease is None else lease.worker
        steps: list[Step] = [Emit(self.identity.id, evaluator_report(message, worker, evaluation.record))]
        if not evaluation.complete:
            return steps + self._deal_evaluation()
        self._evaluation = None
        result = evaluation.result(now_s)
        verdict = self._commander.evaluated(result)
        self._progress.evaluated(result)
        mean = result.reward_mean
        steps.append(Emit(self.identity.id, evaluation_report(result)))
        steps.append(RecordReward(self.identity.id, result.record.train_iter, mean, verdict.best))
        steps.append(self._say(verdict_line(result, is_best=verdict.best, best=self._commander.best)))
        steps += self._progress_rows(now_s)
        return steps + self._carry_out(verdict.decisions, now_s) + self.tick(now_s)

    def collector_report(self, message: CollectorReport) -> list[Step]:
        """A collector sums up; the commander's collector log shows it."""
        lease = self._leases.find(message.lease)
        if lease is None:
            return []
        return [Emit(self.identity.id, collector_report(message, lease.worker, self._experience.env_step))]

    def learner_report(self, message: LearnerReport, now_s: float) -> list[Step]:
        """What the algorithm monitors; progress.txt shows some of it. Without metrics: the learner has run dry."""
        learner = self._leases.learner
        if learner is None or learner.number != message.lease:
            return []
        if message.metrics:
            self._progress.learned(message.metrics)
        self._trained(message.train_iter, now_s)
        return self._progressed(now_s)

    def _trained(self, train_iter: int, now_s: float) -> None:
        if train_iter > self._train_iter:
            self._failures = 0
        self._train_iter = max(self._train_iter, train_iter)
        self._train_rate.note(self._train_iter, now_s)

    # --- time and the end ---

    def tick(self, now_s: float) -> list[Step]:
        """Time has passed."""
        steps: list[Step] = [Emit(self.identity.id, report) for report in self._experience.reports(now_s, self._train_iter)]
        if self.over or self.state == "queued":
            return steps
        return steps + (self._progressed(now_s) if self._commander.ending is None else self._advance_ending(now_s))

    def stop(self, *, now: bool, explanation: str, now_s: float) -> list[Step]:
        """Somebody asked for it."""
        if self.over:
            return []
        end = End("stopped", explanation)
        if self.state == "queued":
            return self._finish(end, now_s)
        steps = self._carry_out(self._commander.end(end, skip_final_evaluation=now), now_s)
        return steps + self.tick(now_s)

    def _progressed(self, now_s: float) -> list[Step]:
        decisions = self._commander.progressed(self.counters(now_s)) if self._learner_ready_now else []
        return self._progress_rows(now_s) + self._carry_out(decisions, now_s)

    def _carry_out(self, decisions: Sequence[Decision], now_s: float) -> list[Step]:
        steps: list[Step] = []
        for decision in decisions:
            match decision:
                case Save():
                    steps += self._ask_to_save(decision, now_s)
                case StartEvaluation():
                    steps += self._start_evaluation(decision, now_s)
                case End():
                    steps += self._begin_ending(decision, now_s)
        return steps

    def _ask_to_save(self, save: Save, now_s: float) -> list[Step]:
        learner = self._leases.learner
        if learner is None or not learner.ready:
            return []  # asked again when the next learner is ready
        self._saves += 1
        best = self._commander.best
        return [
            Tell(
                learner.number,
                SaveCheckpoint(
                    learner.number,
                    self._saves,
                    save.reason,
                    self.counters(now_s),
                    None if best is None else best.reward_mean,
                ),
            )
        ]

    def _start_evaluation(self, start: StartEvaluation, now_s: float) -> list[Step]:
        self._evaluations += 1
        self._evaluation = Evaluation(self._evaluations, start.record, self._config.evaluator.episodes, now_s)
        return self._deal_evaluation()

    def _deal_evaluation(self) -> list[Step]:
        evaluation = self._evaluation
        if evaluation is None:
            return []
        idle = [lease.number for lease in self._leases.ready("evaluator")]
        return [
            Tell(
                lease,
                Evaluate(
                    lease=lease,
                    evaluation=evaluation.number,
                    checkpoint=f"{self.identity.run_dir}/ckpt/{evaluation.record.file}",
                    train_iter=evaluation.record.train_iter,
                    env_step=evaluation.record.env_step,
                    first_episode=share.first_episode,
                    episodes=share.episodes,
                ),
            )
            for lease, share in evaluation.deal(idle)
        ]

    def _begin_ending(self, end: End, now_s: float) -> list[Step]:
        self.state = "stopping"
        self._enter("draining", now_s)
        steps: list[Step] = [self._say(f"the run ends: {end.explanation}")]
        steps += self._drain("collector", end.reason)
        if self._leases.learner is not None:
            steps.append(Tell(self._leases.learner.number, StopTraining(self._leases.learner.number)))
        return steps

    def _advance_ending(self, now_s: float) -> list[Step]:
        """Collectors first, then the last checkpoint and its evaluation, then everybody else."""
        late = now_s > self._stage_deadline_s
        steps: list[Step] = []
        if self._stage == "draining" and (late or not self._leases.of("collector")):
            steps += self._dismiss_late("collector")
            self._enter("settling", now_s, EVALUATION_DEADLINE_S)
            steps += self._carry_out(self._commander.save_final(), now_s)
        if self._stage == "settling" and (late or self._commander.settled or not self._can_settle):
            if not self._commander.settled:
                steps.append(self._say("the last checkpoint or its evaluation could not be had", "warning"))
            self._enter("releasing", now_s)
            steps += self._drain("learner", "the run is over") + self._drain("evaluator", "the run is over")
        if self._stage == "releasing" and (late or not len(self._leases)):
            for role in ("learner", "collector", "evaluator"):
                steps += self._dismiss_late(role)
            assert self._commander.ending is not None
            steps += self._finish(self._commander.ending, now_s)
        return steps

    def _finish(self, end: End, now_s: float) -> list[Step]:
        self._ended_wall_s = self._wall_s(now_s)
        self.reason = end.reason
        natural = ("stop_value", "max_env_steps", "max_train_iters", "max_wall_s")
        self.state = "finished" if end.reason in natural else "stopped" if end.reason == "stopped" else "failed"
        steps = self._progress_rows(now_s, last=True)
        steps.append(self._say(f"the run is over after {self._ended_wall_s:.1f} s: {end.reason}; {end.explanation}"))
        steps.append(CloseRun(self.identity.id, keep=self._experience.live_files()))
        return steps

    # --- inside ---

    @property
    def _collecting(self) -> bool:
        return self.state == "running" and self._learner_ready_now

    @property
    def _learner_ready_now(self) -> bool:
        learner = self._leases.learner
        return learner is not None and learner.ready

    @property
    def _can_settle(self) -> bool:
        """Whether somebody is there to save (and play) the last checkpoint."""
        if self._commander.evaluating is not None:
            return bool(self._leases.of("evaluator"))
        return self._leases.learner is not None

    @property
    def _interrupted(self) -> bool:
        return self._commander.ending is not None and self._commander.ending.reason == "stopped"

    def _wall_s(self, now_s: float) -> float:
        if self.state == "queued":
            return 0.0
        return self._ended_wall_s if self._ended_wall_s is not None else now_s - self._started_s

    def _exploration(self) -> dict[str, float]:
        return exploration(
            self._config.policy, env_step=self._experience.env_step, train_iter=self._train_iter
        )

    def _allowance(self) -> int:
        """Environment steps that may be in the works beyond what is counted."""
        if not self._collecting:
            return 0
        left = self._config.stop.max_env_steps - self._experience.env_step
        return max(0, min(left, self._experience.insertable_rows()))

    def _credit_message(self, lease: int) -> Credit:
        return Credit(lease, self._credit.granted(lease), self._policy, self._exploration())

    def _extend_credit(self) -> list[Step]:
        return [Tell(lease, self._credit_message(lease)) for lease in self._credit.extend(self._allowance())]

    def _chunk_answer(self, message: ChunkReady, *, rejected: str | None) -> Answer:
        granted = self._credit.granted(message.lease)
        return Answer(ChunkAccepted(message.meta.chunk, granted, self._policy, self._exploration(), rejected))

    def _delete(self, files: Sequence[str]) -> list[Step]:
        return [DeleteChunks(self.identity.id, tuple(files))] if files else []

    def _progress_rows(self, now_s: float, *, last: bool = False) -> list[Step]:
        if self._commander.ending is not None and not last:
            return []  # the last row waits for the evaluation of the last checkpoint
        row = self._progress.due(self.counters(now_s), last=last)
        return [] if row is None else [WriteProgress(self.identity.id, row)]

    def _drain(self, role: Role, reason: str) -> list[Step]:
        steps: list[Step] = []
        for lease in self._leases.of(role):
            lease.draining = True
            steps.append(Tell(lease.number, Drain(lease.number, reason)))
        return steps

    def _dismiss_late(self, role: Role) -> list[Step]:
        steps: list[Step] = []
        for lease in self._leases.of(role):
            self._leases.close(lease.number)
            self._forget(lease)
            steps.append(self._say(f"{lease.role} {lease.worker} did not let go in time and is dismissed", "warning"))
            steps.append(Release(lease.number, dismiss=True))
        return steps

    def _enter(self, stage: str, now_s: float, deadline_s: float = STEP_DEADLINE_S) -> None:
        self._stage = stage
        self._stage_deadline_s = now_s + deadline_s

    def _say(self, text: str, level: str = "info") -> Say:
        return Say(self.identity.id, text, "error" if level == "error" else "warning" if level == "warning" else "info")
