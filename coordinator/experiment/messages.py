"""Checks and handles the messages of an experiment's workers."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.buffer.chunk import NAME_FORMAT
from remuda.coordinator.bill import Meter
from remuda.coordinator.effects import Step, refused
from remuda.coordinator.experiment.collecting import Collecting, collector_report
from remuda.coordinator.experiment.policy import PolicyTraining
from remuda.coordinator.experiment.reanalysis import is_its_own
from remuda.coordinator.experiment.workers import ExperimentWorkers
from remuda.coordinator.failures import Failures, ordinal
from remuda.coordinator.leases import Lease, LeaseBook, Sender
from remuda.training.commander.end import End
from remuda.training.effects import Emit, LogLine
from remuda.training.status import RunState
from remuda.wire.messages import (
    AnyMessage,
    BatchRequest,
    CallbacksDecided,
    CheckpointRecord,
    CheckpointSaved,
    ChunkMeta,
    ChunkReady,
    ChunkUnreadable,
    CollectorReport,
    Drained,
    EvaluationDone,
    EvaluationFilmed,
    InferenceJoined,
    LearnerReport,
    NotReanalyzed,
    PolicyPublished,
    Ready,
    Reanalyzed,
    Role,
    TargetPublished,
    WorkerFailed,
    WorkerVitals,
)

_ROLES: dict[type[AnyMessage], Role] = {
    ChunkReady: "collector",
    CollectorReport: "collector",
    BatchRequest: "learner",
    ChunkUnreadable: "learner",
    PolicyPublished: "learner",
    TargetPublished: "learner",
    LearnerReport: "learner",
    CheckpointSaved: "learner",
    CallbacksDecided: "learner",
    EvaluationDone: "evaluator",
    EvaluationFilmed: "evaluator",
    Reanalyzed: "reanalyzer",
    NotReanalyzed: "reanalyzer",
}
"""The only role that may send the message."""
UNDER_A_LEASE: frozenset[type[AnyMessage]] = frozenset(
    {*_ROLES, InferenceJoined, Ready, WorkerVitals, Drained, WorkerFailed}
)
"""Messages about the work of a lease. Any role may send those without an only role."""


class MessageHandlers:
    """Checks every message against the state of the experiment, then passes the message on to the parts concerned.

    A worker with an impossible message loses the lease; the remaining workers do not notice.
    """

    def __init__(
        self,
        experiment: str,
        run: RunState,
        policies: Sequence[PolicyTraining],
        leases: LeaseBook,
        failures: Failures,
        collecting: Collecting,
        workers: ExperimentWorkers,
        meter: Meter,
    ) -> None:
        self._id, self._run = experiment, run
        self._policies, self._first = policies, policies[0]
        self._leases, self._failures = leases, failures
        self._collecting, self._workers, self._meter = collecting, workers, meter
        self._num_envs = policies[0].config.env.num_envs

    # --- checks ---

    def refusal(self, message: AnyMessage, sender: Sender) -> str | None:
        """Reason why this message cannot be true; None if possible. `receive` checks messages about closed leases."""
        lease = self._leases.open_leases.get(getattr(message, "lease", 0))
        if lease is None:
            return None
        if lease.worker != sender.worker or lease.incarnation != sender.incarnation:
            return f"message for lease {lease.number}, which belongs to another worker"
        role = _ROLES.get(type(message), lease.role)
        if role != lease.role:
            return f"{type(message).__name__} from a {lease.role} ({role}s only)"
        if isinstance(message, ChunkReady):  # most are
            return self.refusal_of_chunk(message, sender)
        return self._refusal_of_other(message, lease, sender)

    def _refusal_of_other(self, message: AnyMessage, lease: Lease, sender: Sender) -> str | None:
        policy, index = self._policies[lease.policy_index], getattr(message, "policy_index", 0)
        if index >= len(self._policies):
            return f"it speaks of policy {index}, and there are {len(self._policies)}"
        match message:
            case BatchRequest():
                return policy.flow.refusal(message)
            case PolicyPublished() | TargetPublished() if message.policy.epoch != policy.flow.epoch:
                return f"it publishes under epoch {message.policy.epoch}, and was given {policy.flow.epoch}"
            case Reanalyzed() | NotReanalyzed():
                return self._refusal_of_reanalysis(message, sender) or self._policies[index].reanalysis.refusal(message)
            case CheckpointSaved():
                return _refusal_of_checkpoint(message.record, policy)
            case CallbacksDecided() if not policy.callbacks.book.has_event(message.number):
                return f"its callbacks have decided about event {message.number}, of which nobody was told"
            case CollectorReport():
                return self._policies[index].undeclared(message.metrics.keys())
            case WorkerFailed(hopeless=True) if lease.role != "learner":
                return f"hopeless failure from a {lease.role} (learners only)"
            case _:
                return None

    def refusal_of_chunk(self, message: ChunkReady, sender: Sender) -> str | None:
        """Reason why this chunk cannot be the sender's, or has impossible sizes; also for a closed lease."""
        meta, chunk, collecting = message.meta, message.meta.chunk, self._collecting
        metas = (meta, *message.others)
        if len(metas) != len(self._policies):
            return f"its chunk {meta.file} is of {len(metas)} policies, and there are {len(self._policies)}"
        own = chunk.worker == sender.worker and chunk.incarnation == sender.incarnation
        if not own or meta.file != NAME_FORMAT.format(chunk.worker, chunk.incarnation, chunk.sequence):
            return f"it announces {meta.file}, which is not the file of a chunk of its own"
        most = 2 * (collecting.plan.chunk_slots + self._num_envs)  # it ends with a whole step of the vector, maybe late
        if meta.env_steps > most:
            return f"its chunk {meta.file} has {meta.env_steps} environment steps, and {most} is the most there can be"
        for policy, part in zip(self._policies, metas, strict=True):
            if (why := self._refusal_of_part(part, meta, policy)) is not None:
                return why
        if collecting.credit.is_beyond(message.lease, collecting.plan.slots(metas)):
            return f"its chunk {meta.file} was collected far beyond its credit"
        return None

    def _refusal_of_part(self, part: ChunkMeta, first: ChunkMeta, policy: PolicyTraining) -> str | None:
        """Reason why this part of a chunk cannot be the policy's."""
        if part is not first and (part.chunk, part.env_steps, part.file) != (first.chunk, first.env_steps, first.file):
            return f"its chunk {first.file} is not the same for all policies"
        plan, lane_steps = policy.replay.plan, part.env_steps * policy.replay.plan.agents
        if len(part.episode_returns) > lane_steps + self._num_envs:
            ends = len(part.episode_returns)
            return f"its chunk {part.file} has {part.env_steps} environment steps with {ends} ends of episodes"
        if part.rows > plan.most_rows(part.env_steps):
            return f"its chunk {part.file} has {part.rows} rows of {part.env_steps} environment steps"
        if part.policy.epoch > policy.flow.epoch:
            epoch = policy.flow.epoch
            return f"its chunk {part.file} is of policy epoch {part.policy.epoch}, and the newest is {epoch}"
        if part.task > (newest := policy.commander.curriculum.number):
            return f"its chunk {part.file} is of task {part.task}, and the newest is {newest}"
        if part.metrics and any(metric.steps > lane_steps for metric in part.metrics.values()):
            return f"its chunk {part.file} has means over more than its {part.env_steps} environment steps"
        return policy.undeclared(part.metrics.keys()) if part.metrics else None

    def _refusal_of_reanalysis(self, message: Reanalyzed | NotReanalyzed, sender: Sender) -> str | None:
        """Reason why this reanalysis cannot be the sender's; also for a closed lease."""
        if isinstance(message, NotReanalyzed):
            return None
        meta, epoch = message.meta, self._policies[message.policy_index].flow.epoch
        if not is_its_own(meta, sender.worker, sender.incarnation):
            return f"it announces {meta.file}, which is not the file of a reanalysis of its own"
        if meta.target.epoch > epoch:
            return f"its reanalysis {meta.file} is of epoch {meta.target.epoch}, and the newest is {epoch}"
        return None

    # --- handling ---

    def receive(self, message: AnyMessage, sender: Sender, now_s: float) -> list[Step]:
        """Handle a message about an open or closed lease, after `refusal` has accepted it."""
        lease = self._leases.open_leases.get(getattr(message, "lease", 0))
        if lease is None:
            return self._late(message, sender, now_s)
        match message:
            case ChunkReady():
                return self._chunk(message, lease, now_s)
            case Ready():
                return [] if lease.ready or lease.draining else self._ready(lease, message, now_s)
            case Drained():
                return self._workers.drained(lease)
            case WorkerFailed():
                return self._failed(lease, message, now_s)
            case WorkerVitals():
                self._meter.note_cpu(lease, message.cpu_s)
                own = (self._policies[lease.policy_index],) if lease.role == "learner" else self._policies
                for policy in own:
                    policy.vitals.add(lease.role, lease.worker, message)
                return []
            case CollectorReport() | EvaluationDone() | EvaluationFilmed():
                return self._from_player(lease, message, now_s)
            case Reanalyzed() | NotReanalyzed() | InferenceJoined():
                return self._from_helper(lease, message, now_s)
            case _:
                return self._from_learner(lease, message, self._policies[lease.policy_index], now_s)

    def _from_player(
        self, lease: Lease, message: CollectorReport | EvaluationDone | EvaluationFilmed, now_s: float
    ) -> list[Step]:
        match message:
            case CollectorReport():
                policy = self._policies[message.policy_index]
                report = collector_report(message, lease.worker, policy.replay.ledger.env_step)
                return policy.own([Emit(self._id, report)])
            case EvaluationDone():
                self._worked(lease, now_s)
                policy = self._policies[message.policy_index]
                return policy.own(policy.dispatch.played(message, lease.worker, policy.counters(now_s), now_s))
            case EvaluationFilmed():
                film = message.film, message.train_iter, message.env_step
                return [step for each in self._policies for step in each.own(each.dispatch.outcomes.filmed(*film))]

    def _from_helper(
        self, lease: Lease, message: Reanalyzed | NotReanalyzed | InferenceJoined, now_s: float
    ) -> list[Step]:
        if isinstance(message, InferenceJoined):
            return self._workers.inference.joined(lease, message)
        policy = self._policies[message.policy_index]
        if isinstance(message, NotReanalyzed):
            return policy.reanalysis.not_reanalyzed(message)
        self._worked(lease, now_s)
        return policy.own(policy.reanalysis.reanalyzed(message))

    def _from_learner(self, lease: Lease, message: AnyMessage, policy: PolicyTraining, now_s: float) -> list[Step]:
        match message:
            case BatchRequest():
                return policy.own(policy.flow.requested(message)) + self._collecting.extend()
            case PolicyPublished():
                collectors = [ready.number for ready in self._leases.ready("collector")]
                return self._collecting.published(policy.policy_index, message.policy, collectors)
            case LearnerReport():
                self._learned(lease, message, policy, now_s)
                return []
            case CheckpointSaved():
                return self._saved(lease, message, policy, now_s)
            case ChunkUnreadable():
                return policy.own(policy.flow.unreadable(message))
            case TargetPublished():
                return policy.own(policy.reanalysis.published(message.policy))
            case CallbacksDecided():
                return policy.own(policy.callbacks.decided(message, policy.counters(now_s)))
            case _:
                return []

    def _late(self, message: AnyMessage, sender: Sender, now_s: float) -> list[Step]:
        """Handle a message about a closed lease from the worker that held the lease."""
        its_own = self._leases.was_held_by(getattr(message, "lease", 0), sender)
        match message:
            case ChunkReady() if its_own:
                why = self.refusal_of_chunk(message, sender)
                return self._chunk(message, None, now_s) if why is None else [refused(message, why)]
            case ChunkReady():
                return [refused(message, "it is not a chunk of the worker that had this lease")]
            case Reanalyzed(policy_index=index) if its_own and index < len(self._policies):
                why, policy = self._refusal_of_reanalysis(message, sender), self._policies[index]
                return [] if why is not None else policy.own(policy.reanalysis.came_late(message.meta))
            case WorkerFailed() if its_own:
                return self._hung(message, now_s)
            case _:
                return []

    # --- work begins ---

    def _ready(self, lease: Lease, message: Ready, now_s: float) -> list[Step]:
        self._leases.set_ready(lease)
        lease.ready_s = now_s
        said: list[Step] = [LogLine(self._id, text, "warning") for text in message.warnings]
        match lease.role:
            case "collector":
                return (
                    said + self._first.dispatch.send_opponents([lease.number]) + self._collecting.open([lease.number])
                )
            case "evaluator":
                return said + self._deal()
            case "learner":
                return said + self._learner_ready(self._policies[lease.policy_index], now_s)
            case "reanalyzer":
                for policy in self._policies:
                    policy.reanalysis.ready(lease.number)
                return said
            case "inference":
                return said

    def _learner_ready(self, policy: PolicyTraining, now_s: float) -> list[Step]:
        commander, first = policy.commander, self._run.state == "starting" and not policy.begun
        if first:
            policy.begun = True
            policy.callbacks.begin(policy.counters(now_s))
        if self._run.state == "starting" and all(each.begun for each in self._policies):
            self._run.state = "running"
        decisions = commander.started() if first else commander.retry_save()
        steps = policy.own(policy.dispatch.carry_out(decisions, policy.counters(now_s), now_s))
        if commander.ending is not None:
            return steps
        policy.flow.is_open = True
        return steps + self._collecting.open(lease.number for lease in self._leases.ready("collector"))

    def _deal(self) -> list[Step]:
        """Give idle evaluators episodes of every policy's evaluation."""
        return [step for policy in self._policies for step in policy.dispatch.deal()]

    # --- work is done ---

    def _chunk(self, message: ChunkReady, lease: Lease | None, now_s: float) -> list[Step]:
        """Count a chunk; `lease` is None if closed."""
        if self._run.over:
            return [self._collecting.answer(message, rejected=f"the experiment is over ({self._run.state})")]
        accepted, steps = self._collecting.chunk(message)
        if accepted.fresh:
            if lease is not None:
                lease.worked_s = now_s
            for each in self._leases.by_index["inference"].values():  # which computed the actions
                self._worked(each, now_s)
            if not self._failures.none:
                self._failures.worked(message.meta.chunk.worker, lease, counts=True)
        if accepted.rejected is not None:
            self._failures.counted(now_s)
            self._give_up_if_hopeless(f"chunks are refused: {accepted.rejected}", now_s, passing=False)
        return steps

    def _worked(self, lease: Lease, now_s: float, *, counts: bool = False) -> None:
        """A worker has done some work."""
        lease.worked_s = now_s
        if not self._failures.none:
            self._failures.worked(lease.worker, lease, counts=counts)

    def _learned(self, lease: Lease, message: LearnerReport, policy: PolicyTraining, now_s: float) -> None:
        """Record metrics of the algorithm, partly for progress.txt. No metrics: the learner has no batches left."""
        if message.metrics:
            self._worked(lease, now_s, counts=True)
            policy.progress.learned(message.metrics)
        policy.flow.trained(message.train_iter)

    def _saved(self, lease: Lease, message: CheckpointSaved, policy: PolicyTraining, now_s: float) -> list[Step]:
        """Record a checkpoint. Evaluations of other policies may have waited for it to play beside."""
        self._worked(lease, now_s)
        policy.flow.trained(message.record.train_iter)
        steps = policy.own(policy.dispatch.saved(message, policy.counters(now_s), now_s))
        return [*steps, *self._deal()] if len(self._policies) > 1 else [*steps]

    # --- work fails ---

    def _failed(self, lease: Lease, message: WorkerFailed, now_s: float) -> list[Step]:
        """An exception has ended a worker's work. A repeated message is not another failure."""
        if lease.failed:
            return []
        lease.failed = True
        which = f"{ordinal(self._failures.failed(lease.worker, now_s))} failure of {lease.role} {lease.worker}"
        if message.hopeless:
            self._policies[lease.policy_index].commander.fail(End(message.error, message.error))
        self._give_up_if_hopeless(f"workers fail: {message.error}", now_s)
        return [self._failure_line(which, message), *self._workers.failed(lease, message.error)]

    def _hung(self, message: WorkerFailed, now_s: float) -> list[Step]:
        """Log the stack of a dropped worker that hangs, or the failure of a replaced worker."""
        lease = self._leases.known(message.lease)
        first = lease is not None and not lease.failed
        if lease is not None:
            lease.failed = True
        if first and message.hung and not self._run.over:
            self._failures.counted(now_s)
            self._give_up_if_hopeless(f"workers hang: {message.error}", now_s)
        return [self._failure_line(f"lease {message.lease}", message)]

    def _give_up_if_hopeless(self, what: str, now_s: float, *, passing: bool = True) -> None:
        """Fail the run if its workers fail again and again without any counted work in between."""
        if self._failures.hopeless(now_s, passing=passing):
            reason = f"{self._failures.in_a_row} failures in a row; {what}"
            self._first.commander.end(End(reason, reason), skip_final_evaluation=True)

    def _failure_line(self, which: str, failure: WorkerFailed) -> LogLine:
        return LogLine(self._id, f"{which}: {failure.error}\n{failure.traceback}", "error")


def _refusal_of_checkpoint(record: CheckpointRecord, policy: PolicyTraining) -> str | None:
    ledger, epoch = policy.replay.ledger, policy.flow.epoch
    if record.file != f"iteration_{record.train_iter}.pth.tar":
        return f"its checkpoint of iteration {record.train_iter} is called {record.file}"
    if record.env_step > ledger.env_step or record.episode > ledger.episode:
        return f"its checkpoint is of env_step {record.env_step}, and {ledger.env_step} were collected"
    if record.policy.epoch > epoch:
        return f"its checkpoint is of epoch {record.policy.epoch}, and it was given {epoch}"
    return None
