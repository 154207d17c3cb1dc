"""Handles the messages of an experiment's workers."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.coordinator.effects import Step
from remuda.coordinator.experiment.claims import Claims, Speaker
from remuda.coordinator.experiment.deaths import Deaths
from remuda.coordinator.experiment.dispatch import EvaluationDispatch
from remuda.coordinator.experiment.failures import Failures
from remuda.coordinator.experiment.finished import refused
from remuda.coordinator.experiment.flow_control import FlowControl
from remuda.coordinator.experiment.reanalysis import ReanalysisBook
from remuda.coordinator.experiment.worker_reports import collector_report
from remuda.coordinator.experiment.workers import ExperimentWorkers
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.training.commander.end import End
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.effects import Emit, LogLine
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.status import LiveStatus
from remuda.training.vitals import Vitals
from remuda.wire.messages import (
    AnyMessage,
    BatchRequest,
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


@dataclass(kw_only=True)
class MessageHandlers:
    """Passes each message on to the parts that it concerns."""

    status: LiveStatus
    claims: Claims
    leases: LeaseBook
    workers: ExperimentWorkers
    replay: ReplayAccounting
    flow: FlowControl
    reanalysis: ReanalysisBook
    dispatch: EvaluationDispatch
    progress: ProgressRows
    failures: Failures
    deaths: Deaths
    vitals: Vitals

    def receive(self, message: AnyMessage, speaker: Speaker, now_s: float) -> list[Step]:
        """Handle a message about one of its leases, open or over, that Claims.disbelief has accepted."""
        lease = self.leases.find(getattr(message, "lease", 0))
        if lease is None:
            return self._late(message, speaker, now_s)
        match message:
            case ChunkReady():
                return self._chunk(message, now_s)
            case Ready():
                return [] if lease.ready or lease.draining else self._ready(lease, message, now_s)
            case Drained():
                self.deaths.ended(lease.number)
                return self.workers.drained(lease)
            case WorkerFailed():
                return self._failed(lease, message, now_s)
            case WorkerVitals():
                self.vitals.told(lease.role, lease.worker, message)
                return []
            case CollectorReport():
                return [self._emit(message, lease)]
            case EvaluationDone():
                self._worked(lease, now_s)
                return self.dispatch.played(message, lease.worker, self.status.counters(now_s), now_s)
            case EvaluationFilmed():
                return self.dispatch.filmed(message)
            case _:
                handle = self._from_reanalyzer if lease.role == "reanalyzer" else self._from_learner
                return handle(lease, message, now_s)

    def _late(self, message: AnyMessage, speaker: Speaker, now_s: float) -> list[Step]:
        """Handle news about a lease that is over, if it comes from the worker that held it."""
        its_own = self.claims.is_late_word_of(speaker, getattr(message, "lease", 0))
        match message:
            case ChunkReady() if its_own:
                why = self.claims.of_chunk(message, speaker)
                return self._chunk(message, now_s) if why is None else [refused(message, why)]
            case ChunkReady():
                return [refused(message, "it is not a chunk of the worker that had this lease")]
            case Reanalyzed() if its_own and self.claims.of_reanalysis(message, speaker) is None:
                return self.reanalysis.came_late(message.meta)
            case WorkerFailed() if its_own:
                return self._hung(message, now_s)
            case _:
                return []

    def _from_learner(self, lease: Lease, message: AnyMessage, now_s: float) -> list[Step]:
        match message:
            case BatchRequest():
                return self.flow.requested(message)
            case ChunkUnreadable():
                return self.flow.unreadable(message)
            case PolicyPublished():
                collectors = [ready.number for ready in self.leases.ready("collector")]
                return self.flow.published(message, collectors)
            case TargetPublished():
                return self.reanalysis.published(message.policy)
            case LearnerReport():
                self._learned(lease, message, now_s)
                return []
            case CheckpointSaved():
                self.deaths.worked(lease.number, lease.role, now_s)
                self.flow.trained(message.record.train_iter)
                return self.dispatch.saved(message, self.status.counters(now_s), now_s)
            case _:
                return []

    def _from_reanalyzer(self, lease: Lease, message: AnyMessage, now_s: float) -> list[Step]:
        match message:
            case Reanalyzed():
                self._worked(lease, now_s)
                return self.reanalysis.reanalyzed(message)
            case NotReanalyzed():
                return self.reanalysis.not_reanalyzed(message)
            case _:
                return []

    # --- work begins ---

    def _ready(self, lease: Lease, message: Ready, now_s: float) -> list[Step]:
        self.leases.set_ready(lease)
        self.deaths.ready(lease.number, now_s)
        said: list[Step] = [LogLine(self.status.identity.id, text, "warning") for text in message.warnings]
        match lease.role:
            case "collector":
                return said + self.flow.collector_ready(lease.number)
            case "evaluator":
                return said + self.dispatch.deal()
            case "learner":
                return said + self._learner_ready(now_s)
            case "reanalyzer":
                self.reanalysis.ready(lease.number)
                return said

    def _learner_ready(self, now_s: float) -> list[Step]:
        commander, first = self.dispatch.commander, self.status.state == "starting"
        if first:
            self.status.state = "running"
        decisions = commander.started() if first else commander.retry_save()
        steps = self.dispatch.carry_out(decisions, self.status.counters(now_s), now_s)
        if commander.ending is not None:
            return steps
        return steps + self.flow.open(lease.number for lease in self.leases.ready("collector"))

    # --- work is done ---

    def _chunk(self, message: ChunkReady, now_s: float) -> list[Step]:
        if self.status.over:
            return [self.flow.answer(message, rejected=f"the experiment is over ({self.status.state})")]
        accepted, steps = self.flow.chunk(message)
        if accepted.fresh:
            self.failures.worked(message.meta.chunk.worker)
            self.deaths.worked(message.lease, "collector", now_s)
            self.failures.moved()
            self.progress.chunk(message.meta)
        if accepted.rejected is not None:
            self.failures.counted(now_s)
            self._give_up_if_hopeless(f"chunks are refused: {accepted.rejected}", now_s, passing=False)
        return steps

    def _worked(self, lease: Lease, now_s: float) -> None:
        """A worker has done some work."""
        self.failures.worked(lease.worker)
        self.deaths.worked(lease.number, lease.role, now_s)

    def _learned(self, lease: Lease, message: LearnerReport, now_s: float) -> None:
        """Metrics of the algorithm; progress.txt shows some of them. No metrics: the learner has no batches left."""
        if message.metrics:
            self._worked(lease, now_s)
            self.failures.moved()
            self.progress.learned(message.metrics)
        self.flow.trained(message.train_iter)

    def _emit(self, message: CollectorReport, lease: Lease) -> Emit:
        report = collector_report(message, lease.worker, self.replay.env_step)
        return Emit(self.status.identity.id, report)

    # --- work fails ---

    def _failed(self, lease: Lease, message: WorkerFailed, now_s: float) -> list[Step]:
        """An exception has ended a worker's work. A repeated message is not another failure."""
        if lease.failed:
            return []
        lease.failed = True
        which = f"{_ordinal(self.failures.failed(lease.worker, now_s))} failure of {lease.role} {lease.worker}"
        if message.hopeless:
            self.dispatch.commander.fail(End(message.error, message.error))
        self._give_up_if_hopeless(f"workers fail: {message.error}", now_s)
        return [self._tell_of(which, message), *self.workers.failed(lease, message.error)]

    def _hung(self, message: WorkerFailed, now_s: float) -> list[Step]:
        """A worker that was dropped reports where it hangs, or one that was replaced reports a failure."""
        first = self.leases.last_word(message.lease)
        if first and message.hung and not self.status.over:
            self.failures.counted(now_s)
            self._give_up_if_hopeless(f"workers hang: {message.error}", now_s)
        return [self._tell_of(f"lease {message.lease}", message)]

    def _give_up_if_hopeless(self, what: str, now_s: float, *, passing: bool = True) -> None:
        """The run fails: its workers fail again and again, and nothing is counted or learned in between."""
        if self.failures.hopeless(now_s, passing=passing):
            reason = f"{self.failures.in_a_row} failures in a row; {what}"
            self.dispatch.commander.end(End(reason, reason), skip_final_evaluation=True)

    def _tell_of(self, which: str, failure: WorkerFailed) -> LogLine:
        return LogLine(self.status.identity.id, f"{which}: {failure.error}\n{failure.traceback}", "error")


def _ordinal(count: int) -> str:
    """1st, 2nd, 3rd, 4th …"""
    teen = 10 < count % 100 < 14
    return f"{count}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(count % 10, 'th')}"
