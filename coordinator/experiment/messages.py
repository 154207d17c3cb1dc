"""Checks and handles the messages of an experiment's workers."""

from __future__ import annotations

from collections.abc import Set

from remuda.buffer.chunk import NAME_FORMAT
from remuda.coordinator.effects import Step, refused
from remuda.coordinator.experiment.parts import Parts
from remuda.coordinator.experiment.reanalysis import is_its_own
from remuda.coordinator.leases import Lease, Sender
from remuda.logbook.episode_reports import WorkerReport
from remuda.policy.algorithms import declaration
from remuda.training.commander.end import End
from remuda.training.effects import Emit, LogLine
from remuda.wire.messages import (
    AnyMessage,
    BatchRequest,
    CallbacksDecided,
    CheckpointRecord,
    CheckpointSaved,
    ChunkReady,
    ChunkUnreadable,
    CollectorReport,
    Drained,
    EvaluationDone,
    EvaluationFilmed,
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

UNDER_A_LEASE: frozenset[type[AnyMessage]] = frozenset(
    {
        Ready,
        ChunkReady,
        CollectorReport,
        WorkerVitals,
        BatchRequest,
        ChunkUnreadable,
        PolicyPublished,
        TargetPublished,
        LearnerReport,
        CheckpointSaved,
        CallbacksDecided,
        EvaluationDone,
        EvaluationFilmed,
        Reanalyzed,
        NotReanalyzed,
        Drained,
        WorkerFailed,
    }
)
"""Messages about the work of a lease."""
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
"""The only role that may send the message; any role may send the remaining messages."""


class MessageHandlers:
    """Checks every message against the state of the experiment, then passes the message on to the parts concerned.

    A worker with an impossible message loses the lease; the remaining workers do not notice.
    """

    def __init__(self, parts: Parts) -> None:
        self._id = parts.identity.id
        self._status, self._workers, self._dispatch = parts.status, parts.workers, parts.dispatch
        self._replay, self._flow, self._reanalysis = parts.replay, parts.flow, parts.reanalysis
        self._leases, self._failures = parts.leases, parts.failures
        self._progress, self._vitals, self._callbacks = parts.progress, parts.vitals, parts.callbacks
        self._curriculum, self._plan = parts.commander.curriculum, parts.replay.plan
        self._num_envs = parts.config.env.num_envs
        self._metrics = frozenset(declaration(parts.config).collected)
        """Names under which collectors may report means."""

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
        match message:
            case BatchRequest():
                return self._refusal_of_request(message)
            case PolicyPublished() | TargetPublished() if message.policy.epoch != self._flow.epoch:
                return f"it publishes under epoch {message.policy.epoch}, and was given {self._flow.epoch}"
            case Reanalyzed() | NotReanalyzed():
                return self._refusal_of_reanalysis(message, sender) or self._reanalysis.refusal(message)
            case CheckpointSaved():
                return self._refusal_of_checkpoint(message.record)
            case CallbacksDecided() if not self._callbacks.book.has_event(message.number):
                return f"its callbacks have decided about event {message.number}, of which nobody was told"
            case CollectorReport():
                return self._refusal_of_metrics(message.metrics.keys())
            case WorkerFailed(hopeless=True) if lease.role != "learner":
                return f"hopeless failure from a {lease.role} (learners only)"
            case _:
                return None

    def refusal_of_chunk(self, message: ChunkReady, sender: Sender) -> str | None:
        """Reason why this chunk cannot be the sender's, or has impossible sizes; also for a closed lease."""
        meta, chunk, plan, flow = message.meta, message.meta.chunk, self._plan, self._flow
        if message.others and len(message.others) != flow.others:
            return f"its chunk {meta.file} is of {1 + len(message.others)} policies"
        own = chunk.worker == sender.worker and chunk.incarnation == sender.incarnation
        if not own or meta.file != NAME_FORMAT.format(chunk.worker, chunk.incarnation, chunk.sequence):
            return f"it announces {meta.file}, which is not the file of a chunk of its own"
        lane_steps = meta.env_steps * plan.agents
        most = 2 * (flow.chunk_slots + self._num_envs)  # it ends with a whole step of the vector, maybe late
        if meta.env_steps > most or len(meta.episode_returns) > lane_steps + self._num_envs:
            steps = f"{meta.env_steps} environment steps with {len(meta.episode_returns)} ends of episodes"
            return f"its chunk {meta.file} has {steps}, and {most} is the most there can be"
        if meta.rows > plan.most_rows(meta.env_steps):
            return f"its chunk {meta.file} has {meta.rows} rows of {meta.env_steps} environment steps"
        if meta.policy.epoch > flow.epoch:
            return f"its chunk {meta.file} is of policy epoch {meta.policy.epoch}, and the newest is {flow.epoch}"
        if meta.task > self._curriculum.number:
            return f"its chunk {meta.file} is of task {meta.task}, and the newest is {self._curriculum.number}"
        if meta.metrics and any(metric.steps > lane_steps for metric in meta.metrics.values()):
            return f"its chunk {meta.file} has means over more than its {meta.env_steps} environment steps"
        if flow.credit.is_beyond(message.lease, plan.slots(meta)):
            return f"its chunk {meta.file} was collected far beyond its credit"
        return self._refusal_of_metrics(meta.metrics.keys()) if meta.metrics else None

    def _refusal_of_metrics(self, names: Set[str]) -> str | None:
        unknown = sorted(names - self._metrics)
        return f"it reports {unknown[0]!r}, which its algorithm does not declare" if unknown else None

    def _refusal_of_reanalysis(self, message: Reanalyzed | NotReanalyzed, sender: Sender) -> str | None:
        """Reason why this reanalysis cannot be the sender's; also for a closed lease."""
        if isinstance(message, NotReanalyzed):
            return None
        meta = message.meta
        if not is_its_own(meta, sender.worker, sender.incarnation):
            return f"it announces {meta.file}, which is not the file of a reanalysis of its own"
        if meta.target.epoch > self._flow.epoch:
            return f"its reanalysis {meta.file} is of epoch {meta.target.epoch}, and the newest is {self._flow.epoch}"
        return None

    def _refusal_of_request(self, message: BatchRequest) -> str | None:
        plan, flow = self._plan, self._flow
        if (message.batches, message.batch_size) != (plan.batches_per_request, plan.rows_per_update):
            return (
                f"it asks for {message.batches} batches of {message.batch_size} rows, and its config says "
                f"{plan.batches_per_request} of {plan.rows_per_update}"
            )
        if not 1 <= message.oldest <= message.request < flow.first_refused_request(message.oldest):
            return f"its request {message.request} is far beyond those that were answered"
        if message.loaded_row > flow.announced_row:
            return (
                f"it has loaded the rows below {message.loaded_row}, and was told of those below {flow.announced_row}"
            )
        if message.loaded_reanalysis > self._reanalysis.accepted:
            return f"it has read reanalysis {message.loaded_reanalysis}, and there are {self._reanalysis.accepted}"
        return None

    def _refusal_of_checkpoint(self, record: CheckpointRecord) -> str | None:
        ledger = self._replay.ledger
        if record.file != f"iteration_{record.train_iter}.pth.tar":
            return f"its checkpoint of iteration {record.train_iter} is called {record.file}"
        if record.env_step > ledger.env_step or record.episode > ledger.episode:
            return f"its checkpoint is of env_step {record.env_step}, and {ledger.env_step} were collected"
        if record.policy.epoch > self._flow.epoch:
            return f"its checkpoint is of epoch {record.policy.epoch}, and it was given {self._flow.epoch}"
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
                self._vitals.add(lease.role, lease.worker, message)
                return []
            case CollectorReport():
                return [self._emit(message, lease)]
            case EvaluationDone():
                self._worked(lease, now_s)
                return self._dispatch.played(message, lease.worker, self._status.counters(now_s), now_s)
            case EvaluationFilmed():
                return self._dispatch.filmed(message)
            case _:
                handle = self._from_reanalyzer if lease.role == "reanalyzer" else self._from_learner
                return handle(lease, message, now_s)

    def _late(self, message: AnyMessage, sender: Sender, now_s: float) -> list[Step]:
        """Handle a message about a closed lease from the worker that held the lease."""
        its_own = self._leases.was_held_by(getattr(message, "lease", 0), sender)
        match message:
            case ChunkReady() if its_own:
                why = self.refusal_of_chunk(message, sender)
                return self._chunk(message, None, now_s) if why is None else [refused(message, why)]
            case ChunkReady():
                return [refused(message, "it is not a chunk of the worker that had this lease")]
            case Reanalyzed() if its_own and self._refusal_of_reanalysis(message, sender) is None:
                return self._reanalysis.came_late(message.meta)
            case WorkerFailed() if its_own:
                return self._hung(message, now_s)
            case _:
                return []

    def _from_learner(self, lease: Lease, message: AnyMessage, now_s: float) -> list[Step]:
        match message:
            case BatchRequest():
                return self._flow.requested(message)
            case ChunkUnreadable():
                return self._flow.unreadable(message)
            case PolicyPublished():
                collectors = [ready.number for ready in self._leases.ready("collector")]
                return self._flow.published(message, collectors)
            case TargetPublished():
                return self._reanalysis.published(message.policy)
            case LearnerReport():
                self._learned(lease, message, now_s)
                return []
            case CheckpointSaved():
                self._worked(lease, now_s)
                self._flow.trained(message.record.train_iter)
                return self._dispatch.saved(message, self._status.counters(now_s), now_s)
            case CallbacksDecided():
                return self._callbacks.decided(message, self._status.counters(now_s))
            case _:
                return []

    def _from_reanalyzer(self, lease: Lease, message: AnyMessage, now_s: float) -> list[Step]:
        match message:
            case Reanalyzed():
                self._worked(lease, now_s)
                return self._reanalysis.reanalyzed(message)
            case NotReanalyzed():
                return self._reanalysis.not_reanalyzed(message)
            case _:
                return []

    # --- work begins ---

    def _ready(self, lease: Lease, message: Ready, now_s: float) -> list[Step]:
        self._leases.set_ready(lease)
        lease.ready_s = now_s
        said: list[Step] = [LogLine(self._id, text, "warning") for text in message.warnings]
        match lease.role:
            case "collector":
                return said + self._dispatch.send_opponents([lease.number]) + self._flow.collector_ready(lease.number)
            case "evaluator":
                return said + self._dispatch.deal()
            case "learner":
                return said + self._learner_ready(now_s)
            case "reanalyzer":
                self._reanalysis.ready(lease.number)
                return said

    def _learner_ready(self, now_s: float) -> list[Step]:
        commander, first = self._dispatch.commander, self._status.state == "starting"
        if first:
            self._status.state = "running"
            self._callbacks.begin(self._status.counters(now_s))
        decisions = commander.started() if first else commander.retry_save()
        steps = self._dispatch.carry_out(decisions, self._status.counters(now_s), now_s)
        if commander.ending is not None:
            return steps
        return steps + self._flow.open(lease.number for lease in self._leases.ready("collector"))

    # --- work is done ---

    def _chunk(self, message: ChunkReady, lease: Lease | None, now_s: float) -> list[Step]:
        """Count a chunk; `lease` is None if closed."""
        if self._status.over:
            return [self._flow.answer(message, rejected=f"the experiment is over ({self._status.state})")]
        accepted, steps = self._flow.chunk(message)
        if accepted.fresh:
            if lease is not None:
                lease.worked_s = now_s
            if not self._failures.none:
                self._failures.worked(message.meta.chunk.worker, lease, counts=True)
            self._progress.chunk(message.meta)
            if self._callbacks.book.active:
                self._callbacks.book.chunk(message.meta, self._replay.ledger.env_step)
        if accepted.rejected is not None:
            self._failures.counted(now_s)
            self._give_up_if_hopeless(f"chunks are refused: {accepted.rejected}", now_s, passing=False)
        return steps

    def _worked(self, lease: Lease, now_s: float, *, counts: bool = False) -> None:
        """A worker has done some work."""
        lease.worked_s = now_s
        if not self._failures.none:
            self._failures.worked(lease.worker, lease, counts=counts)

    def _learned(self, lease: Lease, message: LearnerReport, now_s: float) -> None:
        """Record metrics of the algorithm, partly for progress.txt. No metrics: the learner has no batches left."""
        if message.metrics:
            self._worked(lease, now_s, counts=True)
            self._progress.learned(message.metrics)
        self._flow.trained(message.train_iter)

    def _emit(self, message: CollectorReport, lease: Lease) -> Emit:
        report = _collector_report(message, lease.worker, self._replay.ledger.env_step)
        return Emit(self._id, report)

    # --- work fails ---

    def _failed(self, lease: Lease, message: WorkerFailed, now_s: float) -> list[Step]:
        """An exception has ended a worker's work. A repeated message is not another failure."""
        if lease.failed:
            return []
        lease.failed = True
        which = f"{_ordinal(self._failures.failed(lease.worker, now_s))} failure of {lease.role} {lease.worker}"
        if message.hopeless:
            self._dispatch.commander.fail(End(message.error, message.error))
        self._give_up_if_hopeless(f"workers fail: {message.error}", now_s)
        return [self._failure_line(which, message), *self._workers.failed(lease, message.error)]

    def _hung(self, message: WorkerFailed, now_s: float) -> list[Step]:
        """Log the stack of a dropped worker that hangs, or the failure of a replaced worker."""
        lease = self._leases.known(message.lease)
        first = lease is not None and not lease.failed
        if lease is not None:
            lease.failed = True
        if first and message.hung and not self._status.over:
            self._failures.counted(now_s)
            self._give_up_if_hopeless(f"workers hang: {message.error}", now_s)
        return [self._failure_line(f"lease {message.lease}", message)]

    def _give_up_if_hopeless(self, what: str, now_s: float, *, passing: bool = True) -> None:
        """Fail the run if its workers fail again and again without any counted work in between."""
        if self._failures.hopeless(now_s, passing=passing):
            reason = f"{self._failures.in_a_row} failures in a row; {what}"
            self._dispatch.commander.end(End(reason, reason), skip_final_evaluation=True)

    def _failure_line(self, which: str, failure: WorkerFailed) -> LogLine:
        return LogLine(self._id, f"{which}: {failure.error}\n{failure.traceback}", "error")


def _collector_report(message: CollectorReport, worker: str, env_step: int) -> WorkerReport:
    """Return the report about a collector's work."""
    return WorkerReport(
        train_iter=message.train_iter,
        env_step=env_step,
        role="collector",
        worker=worker,
        episode_count=message.episode_count,
        step_count=message.step_count,
        duration_s=message.duration_s,
        reward_mean=message.reward_mean,
        reward_std=message.reward_std,
        statistics=message.statistics,
        metrics=message.metrics,
    )


def _ordinal(count: int) -> str:
    """1st, 2nd, 3rd, 4th …"""
    teen = 10 < count % 100 < 14
    return f"{count}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(count % 10, 'th')}"
