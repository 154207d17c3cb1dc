"""Training of a policy of a run: counts, decisions, callbacks, journal rows, and reports on their state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import CloseRun, DeleteChunks, PolicyEffect, RewindCurves, SendToLease, Step
from remuda.coordinator.experiment.evaluation import EvaluationDispatch
from remuda.coordinator.experiment.flow import FlowControl
from remuda.coordinator.experiment.reanalysis import ReanalysisBook
from remuda.coordinator.leases import LeaseBook
from remuda.environments.assignment import config_of_policy
from remuda.logbook.tensorboard import results_of
from remuda.policy.algorithms import declaration
from remuda.training.commander.callbacks import CallbackBook, follow
from remuda.training.commander.commander import Commander
from remuda.training.commander.end import End
from remuda.training.commander.progress_rows import ProgressRows
from remuda.training.effects import Emit, Happened, LogLine, RecordEffect, WriteProgress, WriteTimers
from remuda.training.journal_entry import Recovered, ResumePoint
from remuda.training.replay.accounting import Accepted, ReplayAccounting
from remuda.training.run_snapshot import Changes, ExperimentSnapshot, Identity, Rows, Stage
from remuda.training.snapshot import LeaseBookSnapshot
from remuda.training.status import Rate, RunState
from remuda.training.vitals import Vitals
from remuda.wire.messages import (
    Acting,
    CallbacksDecided,
    CallCallbacks,
    ChangeSettings,
    ChunkMeta,
    Counters,
    ExperimentStatus,
)

CALLBACKS_LONGEST_S = 60.0
"""Time limit for callbacks at the end of a run, once the last checkpoint is saved and evaluated."""
CALLBACKS_STOPPED_S = 10.0
"""The same after a request to stop."""


@dataclass
class CallbackDispatch:
    """Sends events to the learner, which runs the callbacks; does nothing in a run without callbacks."""

    experiment: str
    book: CallbackBook
    leases: LeaseBook
    commander: Commander
    policy_index: int = 0
    """Among the policies of the run."""
    at_once: bool = False
    """Callbacks get every event at once, without pauses and time limits."""
    _last_sent: tuple[int, int] = field(default=(0, 0), init=False)
    """Lease and event number of the last message."""
    _deadline_s: float | None = field(default=None, init=False)
    """Deadline for the remaining events at the end."""

    def begin(self, counters: Counters) -> None:
        """Begin the run, or begin again, with the first ready learner, unless a callback had ended the run."""
        self.book.started(counters, resumed=self.commander.last_record is not None)
        if self.book.stopped is not None:
            self.commander.end(self.book.stopped)

    def send_due(self, counters: Counters, now_s: float) -> list[Step]:
        """Send the next event to the learner, if both exist; only in a run with callbacks."""
        learner = self.leases.learner_of(self.policy_index)
        if learner is None or not learner.ready:
            return []
        due = self.book.due(counters, math.inf if self.at_once else now_s)
        if due is None or self._last_sent == (learner.number, due[0]):
            return []
        self._last_sent = (learner.number, due[0])
        return [SendToLease(learner.number, CallCallbacks(learner.number, *due, counters.env_step))]

    def decided(self, message: CallbacksDecided, counters: Counters) -> list[Step]:
        """The callbacks have decided about an event."""
        outcome = self.book.decided(message.number, message.answer, counters)
        follow(outcome, self.commander)
        return [*outcome.effects, *(self._change(message.lease) if outcome.changed else ())]

    def repeat(self, lease: int) -> list[Step]:
        """Send a ready learner again what an earlier coordinator may have lost; the event comes with `send_due`."""
        self._last_sent = (0, 0)
        return self._change(lease) if self.book.changes else []

    def concluded(self, end: End, counters: Counters, now_s: float) -> tuple[bool, list[Step]]:
        """Return True once callbacks have received the end or their deadline has passed, and the messages to send."""
        book = self.book
        if not book.active:
            return True, []
        if self._deadline_s is None:
            longest_s = CALLBACKS_STOPPED_S if end.on_request else CALLBACKS_LONGEST_S
            self._deadline_s = math.inf if self.at_once else now_s + longest_s
        if book.idle and not book.closed:
            book.ended(end, counters)
        if book.idle or self.leases.learner_of(self.policy_index) is None or now_s > self._deadline_s:
            return True, []
        return False, self.send_due(counters, now_s)

    def given_up(self) -> list[Step]:
        """Return a log line about events that callbacks did not answer before the deadline."""
        if not self.book.active or self.book.idle:
            return []
        text = "the callbacks have not answered: they were not told of the end of the run, or what they decide is lost"
        return [LogLine(self.experiment, text, "warning")]

    def _change(self, lease: int) -> list[Step]:
        return [SendToLease(lease, ChangeSettings(lease, self.book.all_changes))]


class PolicyTraining:
    """Experience, updates, checkpoints, evaluations and records of a policy. See Experiment for all else."""

    def __init__(
        self,
        identity: Identity,
        config: ExperimentConfig,
        run: RunState,
        leases: LeaseBook,
        now_s: float,
        resumed: ResumePoint | None,
        *,
        policy_index: int,
        serial: bool,
    ) -> None:
        """`config` is the config of the run; all policies share `run` and `leases`; `serial`: see Experiment."""
        id = identity.id
        self.identity = identity
        self.policy_index = policy_index
        """Among the policies of the run, and of its learner among the learners."""
        self.config = own = config_of_policy(config, identity.policy)
        self.begun = False
        """True once its learner has been ready."""
        self._run = run
        self._declaration = declared = declaration(own)
        self._last_exploration = dict(declared.least_exploration)
        self._explores_until = max((schedule[-1][0] for schedule in declared.exploration.values()), default=0)
        self.replay = ReplayAccounting(own, now_s, resumed=resumed, serial=serial)
        self.commander = Commander(own, resumed)
        self.progress = ProgressRows(own, resumed, self.commander.curriculum)
        self.vitals = Vitals(own.log.buffer_interval_s, now_s, leases.open_leases.__contains__)
        self._env_rate, self._train_rate = Rate(), Rate()
        self.reanalysis = ReanalysisBook(id, own, self.replay, policy_index)
        self.flow = FlowControl(id, self.replay, self.reanalysis, resumed)
        book = CallbackBook(id, active=bool(own.callbacks))
        self.callbacks = CallbackDispatch(id, book, leases, self.commander, policy_index, at_once=serial)
        self.dispatch = EvaluationDispatch(id, self.commander, leases, self.progress, book, policy_index)
        self._left_over: tuple[str, ...] = ()
        self.own: Callable[[Iterable[Step]], list[Step]] = self._own if identity.policy else list
        """Turns steps of the policy into steps of the run."""

    def _own(self, steps: Iterable[Step]) -> list[Step]:
        return list(map(self._own_step, steps))

    def _own_step(self, step: Step) -> Step:
        match step:
            case Happened():
                return replace(step, policy=self.identity.policy)
            case _ if isinstance(step, RecordEffect | DeleteChunks | RewindCurves | CloseRun):
                return PolicyEffect(self.identity.id, self.identity.policy, step)
            case _:
                return step

    # --- how it stands ---

    def counters(self, now_s: float) -> Counters:
        """The present counters."""
        ledger, run = self.replay.ledger, self._run
        return Counters(
            env_step=ledger.env_step,
            train_iter=self.flow.train_iter,
            episode=ledger.episode,
            policy_version=self.flow.policy.version,
            wall_s=run.before_s if run.since_s is None else run.before_s + now_s - run.since_s,
        )

    def status(self, waiting_for: str | None, now_s: float) -> ExperimentStatus:
        """Return the status for `remuda status`, as of a run with this policy alone."""
        counters, identity, commander = self.counters(now_s), self.identity, self.commander
        league = self.dispatch.league
        return ExperimentStatus(
            id=identity.id,
            name=identity.name,
            state=self._run.state,
            reason=self._run.reason,
            run_dir=identity.run_dir,
            env_step=counters.env_step,
            train_iter=counters.train_iter,
            episode=counters.episode,
            policy_version=counters.policy_version,
            wall_s=counters.wall_s,
            last_return=None if commander.last is None else commander.last.reward_mean,
            best_return=None if commander.best is None else commander.best.reward_mean,
            env_steps_per_s=self._env_rate.per_s(),
            train_iters_per_s=self._train_rate.per_s(),
            policy_lag=self.replay.policy_lag(self.flow.policy),
            samples_per_insert=self.replay.samples_per_insert,
            waiting_for=waiting_for,
            reanalyzed_rows=self.reanalysis.rows,
            target_train_iter=self.reanalysis.target.train_iter,
            priority=identity.priority,
            ledger=self.replay.ledger.counts,
            user=identity.user,
            project=identity.project,
            rating=None if league is None else league.rating(self.policy_index),
        )

    def undeclared(self, metrics: Set[str]) -> str | None:
        """Return the reason to refuse metrics under undeclared names; None if the algorithm declares all names."""
        unknown = sorted(metrics - set(self._declaration.collected))
        return f"it reports {unknown[0]!r}, which its algorithm does not declare" if unknown else None

    def exploration(self) -> dict[str, float]:
        """The exploration settings for collectors now."""
        env_step = self.replay.ledger.env_step
        explored = env_step >= self._explores_until  # for most of a run, and asked for every chunk
        return self._last_exploration if explored else self._declaration.exploration_at(env_step)

    def acting(self) -> Acting:
        """Return version and exploration of this policy, for collectors."""
        return Acting(self.flow.policy, self.exploration())

    # --- what happens ---

    def start(self, now_s: float) -> None:
        """The clock of the run starts."""
        self.replay.start(now_s)
        self.vitals.start(now_s)

    def chunk(self, meta: ChunkMeta, lease: int, check: Callable[[ChunkMeta], None]) -> Accepted:
        """Count the policy's part of a chunk. `check`: see ReplayAccounting.accept."""
        accepted = self.replay.accept(meta, lease, check)
        if self.replay.plan.on_policy:
            self.flow.drop_stale()
        if accepted.fresh:
            self.progress.chunk(meta)
            if self.callbacks.book.active:
                self.callbacks.book.chunk(meta, self.replay.ledger.env_step)
        return accepted

    def save_now(self, now_s: float) -> list[Step]:
        """Have the learner save, unless the run ends, a save is under way, or nothing was learned since the last."""
        counters = self.counters(now_s)
        decisions = self.commander.save_now(counters) if self.flow.is_open else ()
        return self.own(self.dispatch.carry_out(decisions, counters, now_s))

    def hand_in(self, now_s: float) -> list[Step]:
        """Have the learner, if ready, save and do no further update."""
        self.flow.close()
        return self.own(self.dispatch.carry_out(self.commander.hand_in(), self.counters(now_s), now_s))

    def tick(self, now_s: float) -> list[Step]:
        """Time has passed."""
        counters = self.counters(now_s)
        self._env_rate.note(counters.env_step, now_s)
        self._train_rate.note(counters.train_iter, now_s)
        self.reanalysis.tick()
        return self.own([*self._buffer_reports(counters, now_s), *self._vital_signs(counters, now_s)])

    def do_due(self, counters: Counters, now_s: float, *, rows_are_due: bool) -> list[Step]:
        """Do the due work: a row of progress.txt, a save, or the end."""
        steps: list[Step] = []
        if rows_are_due and self.progress.is_due(counters):
            steps += self._progress_rows(counters)
        if self.reanalysis.deletable:
            steps += self.reanalysis.delete()
        if self.flow.is_open:
            if self.reanalysis.share:
                steps += self.reanalysis.ask()
            if decisions := self.commander.progressed(counters):
                steps += self.dispatch.carry_out(decisions, counters, now_s)
        return steps

    # --- reports: progress.txt, logs, curves, times ---

    def events(self, happened: Happened, now_s: float) -> list[Step]:
        """Return the entry of the policy's time series for this event."""
        return self.own([Emit(self.identity.id, happened.report(self.counters(now_s)))])

    def last_steps(self, end: End, now_s: float) -> list[Step]:
        """Return the remaining reports of a run that is over, and the end of its files."""
        counters, dropped, id = self.counters(now_s), self.replay.dropped_rows, self.identity.id
        files = self.replay.live_files() | self.reanalysis.live_files
        steps: list[Step] = [
            *self._progress_rows(counters, last=True),
            *self._buffer_reports(counters, now_s, last=True),
            *self._vital_signs(counters, now_s, last=True),
            *([LogLine(id, f"{dropped} rows were dropped: too old for the policy")] if dropped else []),
            *self.flow.summary(self.config.buffer.samples_per_insert),
            *self.reanalysis.summary(),
            self.dispatch.outcomes.run_is_over(end, counters.wall_s),
            CloseRun(id, files, results_of(self.status(None, now_s))),
        ]
        return self.own(steps)

    def _progress_rows(self, counters: Counters, *, last: bool = False) -> list[Step]:
        awaited = self.commander.awaited(counters)
        rows = self.progress.last(counters) if last else self.progress.due(counters, awaited)
        return [WriteProgress(self.identity.id, row) for row in rows]

    def _buffer_reports(self, counters: Counters, now_s: float, *, last: bool = False) -> list[Step]:
        """Return the reports of the buffer that are due."""
        if not counters.wall_s:
            return []  # its time has not begun
        reports = self.replay.reports(counters, now_s, newest=self.flow.policy, last=last)
        return [Emit(self.identity.id, self.reanalysis.completed(report)) for report in reports] if reports else []

    def _vital_signs(self, counters: Counters, now_s: float, *, last: bool = False) -> list[Step]:
        """Return the report on the workers' use of time, if due."""
        report, id = self.vitals.due(counters, now_s, last=last), self.identity.id
        return [] if report is None else [Emit(id, report), WriteTimers(id, self.vitals.document(report.wall_s))]

    # --- over a restart ---

    def snapshot(self, now_s: float, stage: Stage, stage_left_s: float | None) -> ExperimentSnapshot:
        """Return the state of the policy for a restarted coordinator, without rows."""
        run, league = self._run, self.dispatch.league
        return ExperimentSnapshot(
            state="running" if run.state == "starting" and self.begun else run.state,
            reason=run.reason,
            stage=stage,
            failures=0,
            wall_s=run.wall_s(now_s),
            replay=self.replay.snapshot(),
            flow=self.flow.snapshot(),
            leases=LeaseBookSnapshot(),
            dispatch=self.dispatch.snapshot(now_s),
            progress=self.progress.snapshot(),
            reanalysis=self.reanalysis.snapshot(),
            stage_left_s=stage_left_s,
            callbacks=self.callbacks.book.snapshot(),
            league=None if league is None or self.policy_index else league.snapshot(),
        )

    def changes(self) -> Changes:
        """Return the rows changed since the last call."""
        return Changes(counted=self.replay.ledger.changes(), reanalysis=self.reanalysis.changes())

    def rows(self) -> Changes:
        """All rows."""
        counted, reanalysis = self.replay.ledger.rows_of_leases(), self.reanalysis.all_rows()
        return Changes(counted=Rows(counted), reanalysis=Rows(reanalysis), whole=True)

    def restore(self, recovered: Recovered, leases: Sequence[int], now_s: float) -> None:
        """Continue from a journal, with these leases still open."""
        snapshot = recovered.snapshot.experiment
        self.begun = snapshot.state not in ("queued", "starting")
        self.replay.restore(snapshot.replay, recovered.chunks, now_s)
        self.flow.restore(snapshot.flow)
        self.dispatch.restore(snapshot.dispatch, now_s)
        self.progress.restore(snapshot.progress)
        self.reanalysis.restore(snapshot.reanalysis, leases)
        self.callbacks.book.restore(snapshot.callbacks)
        self._restore_rest(recovered)

    def resume(
        self, recovered: Recovered, late: Sequence[ChunkMeta], now_s: float, *, progress_rows: int | None = None
    ) -> None:
        """Continue a resumed run with all earlier experience; `late`: see Experiment. `progress_rows` is the length of
        progress.txt if possibly above the length in the snapshot: then the last row of the file shows all."""
        snapshot = recovered.snapshot.experiment
        deletable = [*self.replay.resume(snapshot.replay, recovered.chunks, now_s)]
        if progress_rows in (None, snapshot.progress.epoch):
            self.progress.restore(snapshot.progress)
        self.callbacks.book.resume(snapshot.callbacks)
        self.flow.resume(snapshot.flow)
        self.commander.reset = snapshot.dispatch.commander.reset
        self.reanalysis.restore(snapshot.reanalysis, ())
        for meta in late:
            accepted = self.replay.count_late(meta)
            deletable += accepted.deletable
            if accepted.fresh:
                self.progress.chunk(meta)
                self.callbacks.book.chunk(meta, self.replay.ledger.env_step)
        self._left_over = tuple(deletable)
        self._restore_rest(recovered)

    def _restore_rest(self, recovered: Recovered) -> None:
        """Restore the priorities, and the league, which the first policy has."""
        snapshot = recovered.snapshot.experiment.league
        if self.dispatch.league is not None and snapshot is not None:
            self.dispatch.league.restore(snapshot)
        if recovered.priorities is not None:
            self.replay.restore_priorities(recovered.priorities)

    def leftover_files(self) -> list[Step]:
        """Return deletable payload files of an earlier incarnation, once."""
        files, self._left_over = self._left_over, ()
        return self.own([DeleteChunks(self.identity.id, files)]) if files else []
