"""Handles the messages of an experiment's workers."""

from __future__ import annotations

from remuda.coordinator.effects import Step
from remuda.coordinator.experiment.claims import Speaker
from remuda.coordinator.experiment.finished import refused
from remuda.coordinator.experiment.parts import Parts
from remuda.coordinator.experiment.worker_reports import collector_report
from remuda.coordinator.leases import Lease
from remuda.training.commander.end import End
from remuda.training.effects import Emit, LogLine
from remuda.wire.messages import (
    AnyMessage,
    BatchRequest,
    CallbacksDecided,
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
    TargetPublished,
    WorkerFailed,
    WorkerVitals,
)


class MessageHandlers:
    """Passes each message on to the parts that it concerns."""

    def __init__(self, parts: Parts) -> None:
        books = parts.books
        self._status, self._claims, self._workers, self._dispatch = (
            parts.status,
            parts.claims,
            parts.workers,
            parts.dispatch,
        )
        self._replay, self._flow, self._reanalysis = books.replay, books.flow, books.reanalysis
        self._leases, self._failures, self._deaths = books.leases, books.failures, books.deaths
        self._progress, self._vitals = books.progress, books.vitals
        self._callbacks = parts.callbacks

    def receive(self, message: AnyMessage, speaker: Speaker, now_s: float) -> list[Step]:
        """Handle a message about one of its leases, open or over, that Claims.disbelief has accepted."""
        lease = self._leases.find(getattr(message, "lease", 0))
        if lease is None:
            return self._late(message, speaker, now_s)
        match message:
            case ChunkReady():
                return self._chunk(message, now_s)
            case Ready():
                return [] if lease.ready or lease.draining else self._ready(lease, message, now_s)
            case Drained():
                self._deaths.ended(lease.number)
                return self._workers.drained(lease)
            case WorkerFailed():
                return self._failed(lease, message, now_s)
            case WorkerVitals():
                self._vitals.told(lease.role, lease.worker, message)
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

    def _late(self, message: AnyMessage, speaker: Speaker, now_s: float) -> list[Step]:
        """Handle news about a lease that is over, if it comes from the worker that held it."""
        its_own = self._claims.is_late_word_of(speaker, getattr(message, "lease", 0))
        match message:
            case ChunkReady() if its_own:
                why = self._claims.of_chunk(message, speaker)
                return self._chunk(message, now_s) if why is None else [refused(message, why)]
            case ChunkReady():
                return [refused(message, "it is not a chunk of the worker that had this lease")]
            case Reanalyzed() if its_own and self._claims.of_reanalysis(message, speaker) is None:
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
                self._deaths.worked(lease.number, lease.role, now_s)
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
        self._deaths.ready(lease.number, now_s)
        said: list[Step] = [LogLine(self._status.identity.id, text, "warning") for text in message.warnings]
        match lease.role:
            case "collector":
                return said + self._dispatch.tell_opponents([lease.number]) + self._flow.collector_ready(lease.number)
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

    def _chunk(self, message: ChunkReady, now_s: float) -> list[Step]:
        if self._status.over:
            return [self._flow.answer(message, rejected=f"the experiment is over ({self._status.state})")]
        accepted, steps = self._flow.chunk(message)
        if accepted.fresh:
            self._failures.worked(message.meta.chunk.worker)
            self._deaths.worked(message.lease, "collector", now_s)
            self._failures.moved()
            self._progress.chunk(message.meta)
            self._callbacks.book.chunk(message.meta, self._replay.env_step)
        if accepted.rejected is not None:
            self._failures.counted(now_s)
            self._give_up_if_hopeless(f"chunks are refused: {accepted.rejected}", now_s, passing=False)
        return steps

    def _worked(self, lease: Lease, now_s: float) -> None:
        """A worker has done some work."""
        self._failures.worked(lease.worker)
        self._deaths.worked(lease.number, lease.role, now_s)

    def _learned(self, lease: Lease, message: LearnerReport, now_s: float) -> None:
        """Metrics of the algorithm; progress.txt shows some of them. No metrics: the learner has no batches left."""
        if message.metrics:
            self._worked(lease, now_s)
            self._failures.moved()
            self._progress.learned(message.metrics)
        self._flow.trained(message.train_iter)

    def _emit(self, message: CollectorReport, lease: Lease) -> Emit:
        report = collector_report(message, lease.worker, self._replay.env_step)
        return Emit(self._status.identity.id, report)

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
        return [self._tell_of(which, message), *self._workers.failed(lease, message.error)]

    def _hung(self, message: WorkerFailed, now_s: float) -> list[Step]:
        """A worker that was dropped reports where it hangs, or one that was replaced reports a failure."""
        first = self._leases.last_word(message.lease)
        if first and message.hung and not self._status.over:
            self._failures.counted(now_s)
            self._give_up_if_hopeless(f"workers hang: {message.error}", now_s)
        return [self._tell_of(f"lease {message.lease}", message)]

    def _give_up_if_hopeless(self, what: str, now_s: float, *, passing: bool = True) -> None:
        """The run fails: its workers fail again and again, and nothing is counted or learned in between."""
        if self._failures.hopeless(now_s, passing=passing):
            reason = f"{self._failures.in_a_row} failures in a row; {what}"
            self._dispatch.commander.end(End(reason, reason), skip_final_evaluation=True)

    def _tell_of(self, which: str, failure: WorkerFailed) -> LogLine:
        return LogLine(self._status.identity.id, f"{which}: {failure.error}\n{failure.traceback}", "error")


def _ordinal(count: int) -> str:
    """1st, 2nd, 3rd, 4th …"""
    teen = 10 < count % 100 < 14
    return f"{count}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(count % 10, 'th')}"
