"""One experiment in the coordinator: its workers, its experience, its commander, from queue to end.

Pure: every method takes what happened and a clock reading and returns steps to be taken (see effects.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.commander import Commander, End
from remuda.coordinator.effects import (
    CloseRun,
    Emit,
    Release,
    RewindCurves,
    Say,
    Step,
    Tell,
    WriteProgress,
    WriteTimers,
)
from remuda.coordinator.experience import Experience
from remuda.coordinator.failures import Failures
from remuda.coordinator.identity import Identity
from remuda.coordinator.judging import Judging
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.coordinator.memory import OVER, ExperimentMemory, NewEpisodes
from remuda.coordinator.progress import ProgressRows
from remuda.coordinator.reporting import collector_report
from remuda.coordinator.resumed import Resumed
from remuda.coordinator.scheduler import ROLES, Demand, Holding
from remuda.coordinator.staffing import Staffing
from remuda.coordinator.supply import Supply
from remuda.coordinator.vitals import COORDINATOR, Vitals
from remuda.wire.messages import (
    AnyMessage,
    Assign,
    BatchRequest,
    CheckpointSaved,
    ChunkMeta,
    ChunkReady,
    ChunkUnreadable,
    CollectorReport,
    Counters,
    Drain,
    Drained,
    EvaluationDone,
    ExperimentState,
    ExperimentStatus,
    IndexedChunk,
    LearnerReport,
    PolicyPublished,
    Ready,
    Role,
    StopTraining,
    WorkerFailed,
    WorkerVitals,
)

STAGE_DEADLINE_S = 60.0
"""Longest that draining the collectors, and letting go of everybody else, may take when a run ends."""
SETTLE_DEADLINE_S = 600.0
"""Longest that saving and judging the last checkpoint may take."""
LIVES_PER_RUN = 1_000
"""Seeds of replacements: those of a resumed run begin beyond what any run before it can have used."""
NATURAL_ENDS = ("stop_value", "max_env_steps", "max_train_iters", "max_wall_s")

Stage = Literal["working", "draining", "settling", "releasing"]


class Experiment:
    """Holds what the coordinator knows of one experiment and decides its next steps."""

    def __init__(
        self, identity: Identity, config: ExperimentConfig, now_s: float, resumed: Resumed | None = None
    ) -> None:
        self.identity = identity
        self.state: ExperimentState = "queued"
        self.reason: str | None = None
        self._config = config
        self._config_json = config.model_dump_json()
        self._experience = Experience(config, now_s, resumed=resumed, journaled=True)
        self._leases = LeaseBook()
        self._progress = ProgressRows(config, resumed)
        self._commander = Commander(config, resumed)
        self._supply = Supply(identity.id, config, self._experience, resumed)
        self._judging = Judging(identity.id, identity.run_dir, self._commander, self._leases, self._progress)
        self._vitals = Vitals(config.log.buffer_interval_s, now_s)
        self._lives_before = 0 if resumed is None else resumed.life * LIVES_PER_RUN
        self._before_s = 0.0 if resumed is None else resumed.counters.wall_s
        self._started_s = now_s
        self._ended_wall_s: float | None = None
        self._failures = Failures()
        self._staffing = Staffing(identity, config, self._leases, self._failures, now_s)
        self._stage: Stage = "working"
        self._stage_deadline_s = 0.0

    # --- what others ask of it ---

    @property
    def over(self) -> bool:
        """Nothing more will happen."""
        return self.state in OVER

    def demand(self, now_s: float) -> Demand | None:
        """Workers it still needs; None when it wants none."""
        if self.over or self._commander.ending is not None or self._failures.rest_s(now_s):
            return None
        return self._staffing.demand(now_s, started=self.state != "queued")

    def holding(self) -> Holding:
        """Workers that it could spare, and those it is giving back."""
        return self._staffing.holding(keeps=self.over or self._commander.ending is not None)

    def wait(self, reason: str | None, now_s: float) -> list[Step]:
        """What the scheduler says it lacks; None for nothing."""
        news = self._staffing.wait(reason, now_s)
        return [self._say(reason)] if news and reason else []

    def lend(self, number: int, to: str) -> list[Step]:
        """Give a worker back for another experiment that lacks it."""
        lease = self._leases.find(number)
        assert lease is not None, "only what it holds is asked back"
        lease.draining = True
        reason = f"{to} waits for a {lease.role}"
        text = f"{lease.role} {lease.worker} goes back to the herd: {reason}"
        return [self._say(text), Tell(number, Drain(number, reason[:1_000]))]

    def weighed(self, coordinator: WorkerVitals) -> None:
        """The coordinator's own process says how its time was spent."""
        self._vitals.told(COORDINATOR, COORDINATOR, coordinator)

    def work_share(self, worker: str) -> float | None:
        """Share of the last seconds in which this worker did not wait; None until it has said so."""
        return self._vitals.work_share(worker)

    def counters(self, now_s: float) -> Counters:
        """The one set of counters, as of now."""
        return Counters(
            env_step=self._experience.env_step,
            train_iter=self._supply.train_iter,
            episode=self._experience.episode,
            policy_version=self._supply.policy.version,
            wall_s=self._wall_s(now_s),
        )

    def status(self, now_s: float) -> ExperimentStatus:
        """As `remuda status` shows it."""
        last, best, counters = self._commander.last, self._commander.best, self.counters(now_s)
        return ExperimentStatus(
            id=self.identity.id,
            name=self.identity.name,
            state=self.state,
            reason=self.reason,
            run_dir=self.identity.run_dir,
            env_step=counters.env_step,
            train_iter=counters.train_iter,
            episode=counters.episode,
            policy_version=counters.policy_version,
            wall_s=counters.wall_s,
            last_return=None if last is None else last.reward_mean,
            best_return=None if best is None else best.reward_mean,
            env_steps_per_s=self._supply.env_rate.per_s(),
            train_iters_per_s=self._supply.train_rate.per_s(),
            policy_lag=self._experience.policy_lag(self._supply.policy),
            samples_per_insert=self._experience.samples_per_insert,
            waiting_for=None if self.over else self._staffing.explain(now_s, running=self.state == "running"),
        )

    # --- workers come and go ---

    def assign(self, number: int, role: Role, worker: str, now_s: float) -> list[Step]:
        """A worker was drawn from the herd for it."""
        lease = self._leases.open(number, role, worker)
        if self.state == "queued":
            self.state, self._started_s = "starting", now_s
        record = self._commander.last_record
        replay: list[IndexedChunk] = []
        steps: list[Step] = []
        if role == "learner":
            replay, steps = self._supply.new_learner(0 if record is None else record.train_iter)
            if record is not None:
                steps = [*steps, RewindCurves(self.identity.id, record.train_iter)]
        restored = role == "learner" and record is not None
        message = Assign(
            lease=number,
            experiment=self.identity.id,
            name=self.identity.name,
            run_dir=self.identity.run_dir,
            config_json=self._config_json,
            index=lease.index,
            life=self._lives_before + lease.life,
            policy_file=self.identity.policy_file,
            epoch=self._supply.epoch,
            checkpoint=f"{self.identity.run_dir}/ckpt/{record.file}" if restored and record else None,
            exploration=self._supply.exploration(),
            replay=replay,
        )
        return [*steps, Tell(number, message), self._say(f"{role} {worker} joins as {role} {lease.index}")]

    def worker_gone(self, number: int, why: str, now_s: float) -> list[Step]:
        """A worker was lost, left, or started a new life: its lease is over."""
        lease = self._leases.close(number)
        if lease is None:
            return []
        steps = self._forget(lease)
        if not self.over:
            steps.insert(0, self._say(f"{lease.role} {lease.worker} is gone: {why}", "warning"))
        return steps + self.tick(now_s)

    def _forget(self, lease: Lease) -> list[Step]:
        match lease.role:
            case "collector":
                return self._supply.collector_gone(lease.number)
            case "evaluator":
                return self._judging.evaluator_gone(lease.number)
            case "learner":
                self._supply.close()
                return []

    # --- what workers say ---

    def receive(self, message: AnyMessage, now_s: float) -> list[Step]:
        """A message about one of its leases, open or over."""
        if isinstance(message, ChunkReady):
            return self._chunk(message, now_s)
        lease = self._leases.find(getattr(message, "lease", 0))
        if lease is None:  # late news of a lease that is over
            return self._hung(message, now_s) if isinstance(message, WorkerFailed) else []
        match message:
            case Ready():
                return self._ready(lease, now_s)
            case Drained():
                self._leases.close(lease.number)
                return [*self._forget(lease), Release(lease.number), *self.tick(now_s)]
            case WorkerFailed():
                return self._worker_failed(lease, message, now_s)
            case CollectorReport():
                report = collector_report(message, lease.worker, self._experience.env_step)
                return [Emit(self.identity.id, report)]
            case WorkerVitals():
                self._vitals.told(lease.role, lease.worker, message)
                return []
            case EvaluationDone():
                self._failures.worked(lease.worker)
                steps = self._judging.played(message, lease.worker, self.counters(now_s), now_s)
                return steps + self._begin_ending_if_due(now_s) + self.tick(now_s)
            case _:
                return self._from_learner(lease, message, now_s)

    def _from_learner(self, lease: Lease, message: AnyMessage, now_s: float) -> list[Step]:
        match message:
            case BatchRequest():
                return self._moved(self._supply.requested(message, now_s), now_s)
            case ChunkUnreadable():
                return self._supply.unreadable(message)
            case PolicyPublished():
                collectors = [ready.number for ready in self._leases.ready("collector")]
                return self._supply.published(message, collectors)
            case LearnerReport():
                return self._learner_report(lease, message, now_s)
            case CheckpointSaved():
                self._supply.trained(message.record.train_iter, now_s)
                return self._judging.saved(message, self.counters(now_s), now_s) + self.tick(now_s)
            case _:
                return []

    def _ready(self, lease: Lease, now_s: float) -> list[Step]:
        lease.ready = True
        match lease.role:
            case "collector":
                return self._supply.collector_ready(lease.number)
            case "evaluator":
                return self._judging.deal()
            case "learner":
                return self._learner_ready(now_s)

    def _learner_ready(self, now_s: float) -> list[Step]:
        decisions = self._commander.started() if self.state == "starting" else self._commander.retry_save()
        if self.state == "starting":
            self.state = "running"
        steps = self._judging.carry_out(decisions, self.counters(now_s), now_s)
        if self._commander.ending is not None:
            return steps + self._begin_ending_if_due(now_s)
        return steps + self._supply.open(lease.number for lease in self._leases.ready("collector"))

    def _chunk(self, message: ChunkReady, now_s: float) -> list[Step]:
        if self.over:
            return [self._supply.answer(message, rejected=f"the experiment is over ({self.state})")]
        accepted, steps = self._supply.chunk(message, now_s)
        if accepted.fresh:
            self._failures.worked(message.meta.chunk.worker)
            self._failures.moved()
            self._progress.chunk(message.meta)
        if accepted.rejected is not None:
            self._failures.counted(now_s)
            steps += self._give_up_if_hopeless(f"chunks are refused: {accepted.rejected}", now_s, passing=False)
        return self._moved(steps, now_s)

    def _learner_report(self, lease: Lease, message: LearnerReport, now_s: float) -> list[Step]:
        """What the algorithm monitors; progress.txt shows some of it. Without metrics: the learner has run dry."""
        if message.metrics:
            self._failures.worked(lease.worker)
            self._failures.moved()
            self._progress.learned(message.metrics)
        self._supply.trained(message.train_iter, now_s)
        return self._moved([], now_s)

    def _worker_failed(self, lease: Lease, message: WorkerFailed, now_s: float) -> list[Step]:
        """An exception has ended its work. It says next that it has let go, or leaves the herd."""
        which = f"{_ordinal(self._failures.failed(lease.worker, now_s))} failure of {lease.role} {lease.worker}"
        steps: list[Step] = [self._say(f"{which}: {message.error}\n{message.traceback}", "error")]
        lease.ready, lease.draining = False, True
        steps += self._forget(lease)
        return steps + self._give_up_if_hopeless(f"workers fail: {message.error}", now_s)

    def _hung(self, message: WorkerFailed, now_s: float) -> list[Step]:
        """A worker that was given up says what it was doing all the time."""
        steps: list[Step] = [self._say(f"lease {message.lease}: {message.error}\n{message.traceback}", "error")]
        hung = message.error.startswith("dismissed: ")  # else it had been replaced, and failed at that
        if self.over or not hung:
            return steps
        self._failures.counted(now_s)
        return steps + self._give_up_if_hopeless(f"workers hang: {message.error}", now_s)

    def _give_up_if_hopeless(self, what: str, now_s: float, *, passing: bool = True) -> list[Step]:
        """It fails again and again, without anything counted or learned in between."""
        if not self._failures.hopeless(now_s, passing=passing):
            return []
        reason = f"{self._failures.in_a_row} failures in a row; {what}"
        self._commander.end(End(reason, reason), skip_final_evaluation=True)
        return self._begin_ending_if_due(now_s)

    # --- time and the end ---

    def tick(self, now_s: float) -> list[Step]:
        """Time has passed."""
        if self.over:
            return []  # the run folder is closed
        reports = self._experience.reports(self.counters(now_s), now_s)
        steps: list[Step] = [Emit(self.identity.id, report) for report in reports]
        if self.state == "queued":
            return steps
        self._supply.note_rates(now_s)
        steps += self._vital_signs(now_s)
        return steps + (self._moved([], now_s) if self._stage == "working" else self._advance_ending(now_s))

    def stop(self, *, now: bool, explanation: str, now_s: float) -> list[Step]:
        """Somebody asked for it."""
        if self.over:
            return []
        self._commander.end(End("stopped", explanation), skip_final_evaluation=now)
        if self.state == "queued":
            return self._finish(now_s)
        return self._begin_ending_if_due(now_s) + self.tick(now_s)

    def _moved(self, steps: list[Step], now_s: float) -> list[Step]:
        """Counters have changed: progress rows, saves and the end may be due."""
        counters = self.counters(now_s)
        steps = steps + self._progress_rows(counters)
        learner = self._leases.learner
        if learner is None or not learner.ready:
            return steps
        steps += self._judging.carry_out(self._commander.progressed(counters), counters, now_s)
        return steps + self._begin_ending_if_due(now_s)

    def _begin_ending_if_due(self, now_s: float) -> list[Step]:
        end = self._commander.ending
        if end is None or self._stage != "working":
            return []
        self.state = "stopping"
        self._supply.close()
        self._enter("draining", now_s, STAGE_DEADLINE_S)
        steps: list[Step] = [self._say(f"the run ends: {end.explanation}"), *self._drain("collector", end.reason)]
        if self._leases.learner is not None:
            steps.append(Tell(self._leases.learner.number, StopTraining(self._leases.learner.number)))
        return steps

    def _advance_ending(self, now_s: float) -> list[Step]:
        """Collectors first, then the last checkpoint and its evaluation, then everybody else."""
        late = now_s > self._stage_deadline_s
        steps: list[Step] = []
        if self._stage == "draining" and (late or not self._leases.of("collector")):
            steps += self._dismiss("collector")
            self._enter("settling", now_s, SETTLE_DEADLINE_S)
            decisions = self._commander.save_final()
            steps += self._judging.carry_out(decisions, self.counters(now_s), now_s)
        if self._stage == "settling" and (late or self._commander.settled or not self._judging.can_settle):
            if not self._commander.settled:
                steps.append(self._say("the last checkpoint or its evaluation could not be had", "warning"))
            elif (given_up := self._commander.evaluating) is not None:
                steps.append(self._say(f"the evaluation of {given_up.file} is given up"))
            self._enter("releasing", now_s, STAGE_DEADLINE_S)
            steps += self._drain("learner", "the run is over") + self._drain("evaluator", "the run is over")
        if self._stage == "releasing" and (late or not len(self._leases)):
            for role in ROLES:
                steps += self._dismiss(role)
            steps += self._finish(now_s)
        return steps

    def _finish(self, now_s: float) -> list[Step]:
        end = self._commander.ending
        assert end is not None, "an experiment finishes only because something ended it"
        self._ended_wall_s = self._wall_s(now_s)
        self.reason = end.reason
        self.state = "finished" if end.reason in NATURAL_ENDS else "stopped" if end.reason == "stopped" else "failed"
        dropped = self._experience.dropped_rows
        return [
            *self._progress_rows(self.counters(now_s), last=True),
            *self._vital_signs(now_s, last=True),
            *([self._say(f"{dropped} rows were dropped: too old for the policy")] if dropped else []),
            self._say(f"the run is over after {self._ended_wall_s:.1f} s: {end.reason}; {end.explanation}"),
            CloseRun(self.identity.id, keep=self._experience.live_files()),
        ]

    # --- over a restart ---

    def memory(self, now_s: float) -> ExperimentMemory:
        """What a restarted coordinator has to know."""
        return ExperimentMemory(
            state=self.state,
            reason=self.reason,
            stage=self._stage,
            failures=self._failures.in_a_row,
            wall_s=self._wall_s(now_s),
            experience=self._experience.memory(),
            supply=self._supply.memory(),
            leases=self._leases.memory(),
            judging=self._judging.memory(now_s),
            progress=self._progress.memory(),
            workers_failures=self._failures.memory(now_s),
        )

    def new_episodes(self) -> NewEpisodes | None:
        """Training episodes that progress.txt has still to show, as far as they have come since the last call."""
        return self._progress.news()

    def remember(self, memory: ExperimentMemory, chunks: Sequence[IndexedChunk], now_s: float) -> None:
        """Go on from there, with these chunks still in data/. Leases stay open: their workers may come back."""
        self.state, self.reason = memory.state, memory.reason
        self._failures.remember(memory.workers_failures, memory.failures, now_s)
        self._before_s, self._started_s = memory.wall_s, now_s
        self._ended_wall_s = memory.wall_s if self.over else None
        self._enter(memory.stage, now_s, SETTLE_DEADLINE_S if memory.stage == "settling" else STAGE_DEADLINE_S)
        self._experience.remember(memory.experience, chunks, now_s)
        self._supply.remember(memory.supply)
        self._leases.remember(memory.leases)
        self._judging.remember(memory.judging, now_s)
        self._progress.remember(memory.progress)

    def resume(self, memory: ExperimentMemory, chunks: Sequence[IndexedChunk], now_s: float) -> None:
        """Go on with all the experience of a former life, its learner at the checkpoint that this life begins with."""
        self._experience.remember(memory.experience, chunks, now_s)
        self._progress.remember(memory.progress)
        self._supply.resume(memory.supply)
        self._lives_before = 0
        self._leases.remember(replace(memory.leases, leases=[]))

    def count_late(self, metas: Sequence[ChunkMeta]) -> None:
        """Chunks of a former life that were written and never announced, or announced and not counted any more."""
        for meta in metas:
            if self._experience.accept(meta).fresh:
                self._progress.chunk(meta)

    def back(self, number: int, now_s: float) -> list[Step]:
        """The worker of this lease has outlived the coordinator: say again what may have been lost."""
        lease = self._leases.find(number)
        if lease is None:
            return []
        steps: list[Step] = [self._say(f"{lease.role} {lease.worker} is back")]
        if lease.role == "learner":
            self._supply.learner_back()
        if lease.draining:
            return [*steps, Tell(number, Drain(number, "as it was told before"))]
        if not lease.ready:
            return steps
        if lease.role == "collector":
            return [*steps, *self._supply.repeat(number)]
        if lease.role == "learner" and self._stage != "working":
            steps.append(Tell(number, StopTraining(number)))
        return [*steps, *self._judging.repeat(lease, self.counters(now_s))]

    def is_soft(self, message: AnyMessage) -> bool:
        """Whether what this message changed may be forgotten for a moment: rows drawn with replacement are."""
        return isinstance(message, BatchRequest) and not self._experience.plan.on_policy

    @property
    def config_json(self) -> str:
        """The config as submitted and resolved."""
        return self._config_json

    @property
    def lease_numbers(self) -> list[int]:
        """Of its open leases."""
        return [lease.number for lease in self._leases]

    @property
    def past_leases(self) -> list[int]:
        """The newest leases it had, open or over."""
        return list(self._leases.numbers)

    @property
    def experience(self) -> Experience:
        """What was counted and can be sampled."""
        return self._experience

    # --- inside ---

    def _wall_s(self, now_s: float) -> float:
        if self._ended_wall_s is not None:
            return self._ended_wall_s
        return self._before_s + (0.0 if self.state == "queued" else now_s - self._started_s)

    def _progress_rows(self, counters: Counters, *, last: bool = False) -> list[Step]:
        row = self._progress.due(counters, last=last)
        return [] if row is None else [WriteProgress(self.identity.id, row)]

    def _vital_signs(self, now_s: float, *, last: bool = False) -> list[Step]:
        report = self._vitals.due(self.counters(now_s), now_s, last=last)
        if report is None:
            return []
        id = self.identity.id
        return [Emit(id, report), WriteTimers(id, self._vitals.document(report.wall_s))]

    def _drain(self, role: Role, reason: str) -> list[Step]:
        leases = self._leases.of(role)
        for lease in leases:
            lease.draining = True
        return [Tell(lease.number, Drain(lease.number, reason[:1_000])) for lease in leases]

    def _dismiss(self, role: Role) -> list[Step]:
        """End the leases of those that did not let go in time."""
        steps: list[Step] = []
        for lease in self._leases.of(role):
            self._leases.close(lease.number)
            steps += self._forget(lease)
            steps.append(self._say(f"{lease.role} {lease.worker} did not let go in time and is dismissed", "warning"))
            steps.append(Release(lease.number, dismiss=True))
        return steps

    def _enter(self, stage: Stage, now_s: float, deadline_s: float) -> None:
        self._stage, self._stage_deadline_s = stage, now_s + deadline_s

    def _say(self, text: str, level: Literal["info", "warning", "error"] = "info") -> Say:
        return Say(self.identity.id, text, level)


def _ordinal(count: int) -> str:
    """1st, 2nd, 3rd, 4th …"""
    teen = 10 < count % 100 < 14
    return f"{count}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(count % 10, 'th')}"
