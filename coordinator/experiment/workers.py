"""The workers of an experiment: demand, joining, return, departure, failures and deaths.

A process that dies gives no reason: the environment, or a library of the run, may have ended it. Chunks from before its
death prove nothing, since the next incarnation may die at the same point. A lease that works for a while proves that
the role can work. So a run that loses a worker now and then never fails for it, however long the run takes.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import Release, RewindCurves, SendToLease, Step
from remuda.coordinator.experiment.evaluation import EvaluationDispatch
from remuda.coordinator.experiment.flow import FlowControl
from remuda.coordinator.experiment.reanalysis import ReanalysisBook
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.coordinator.scheduler import Demand, Holding
from remuda.logbook.series import EventKind
from remuda.policy.algorithms import reanalyzed_by_workers
from remuda.training.changed_rows import ChangedRows
from remuda.training.commander.callbacks import CallbackBook
from remuda.training.effects import Happened, Level, LogLine
from remuda.training.identity import Identity
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.snapshot import DeathsSnapshot, FailuresSnapshot, LeaseHolder, RestSnapshot, Rows
from remuda.wire.messages import ROLES, Assign, Counters, Drain, IndexedChunk, Role, StopTraining, Task, shortened

PATIENCE_S = 3.0
"""Time that an experiment waits for new workers before other experiments must give some back: long enough for a herd to
assemble, or for a nanny to restart a worker."""
OVERTAKEN_FIRST_S = 60.0
"""Length of the first period in which others may overtake an experiment. In the next period of the same length, free
workers are kept for it, and so on, with doubled lengths."""

FAILURES_IN_A_ROW = 5
"""Failures in a row, of any workers, after which an experiment fails. A counted chunk or a finished update ends the
row."""
LEAST_S = 7.0
"""Minimum time since the first of these failures. Many simultaneous failures may have one passing cause: then the
experiment takes no worker until this time is over, and the next failure is final."""
FIRST_REST_S = 1.0
"""Pause before a failed worker is taken again; doubled after each further failure in a row."""
LONGEST_REST_S = 32.0
WORKERS_KEPT = 1_000
"""Number of workers whose failures are kept: the most recent ones."""
GOOD_LEASE_S = 30.0
"""A lease whose worker hands in work this long after it was ready proves the role: earlier deaths are forgotten, and
its own death does not count."""
_CONTAINED = "; an environment in a process of its own (env.vectorization: async) ends no collector when it crashes"
_MAY_LACK: tuple[Role, ...] = ("collector", "reanalyzer")
"""A run continues even without any worker of these roles."""
LOST = "the steps that it had taken and not announced are lost, at most two chunks: how many is not known"
"""Log line for a killed collector: it loses the unfinished chunk, and maybe one under way."""


@dataclass
class Streak:
    """Failures of the same kind in a row."""

    count: int = 0
    first_s: float = 0.0

    def add(self, now_s: float) -> None:
        """Count a failure."""
        if self.count == 0:
            self.first_s = now_s
        self.count += 1

    def hopeless(self, now_s: float, *, passing: bool = True) -> bool:
        """True if the experiment has to fail. `passing`: the cause of the last failure may pass by itself."""
        return self.count >= FAILURES_IN_A_ROW and (not passing or now_s >= self.first_s + LEAST_S)

    def rest_s(self, now_s: float) -> float:
        """Seconds for which the experiment still takes no workers."""
        return max(0.0, self.first_s + LEAST_S - now_s) if self.count >= FAILURES_IN_A_ROW else 0.0


@dataclass
class _Record:
    """A worker's failures for this experiment."""

    in_all: int = 0
    in_a_row: int = 0
    """Without any work of this worker in between."""
    until_s: float = 0.0
    """The worker is not taken before this time."""


@dataclass
class _Deaths:
    """Deaths in a role."""

    streak: Streak = field(default_factory=Streak)
    newest: deque[tuple[str, str]] = field(default_factory=lambda: deque[tuple[str, str]](maxlen=FAILURES_IN_A_ROW))
    """The newest deaths: workers (by UUID) and how they ended."""


class Failures:
    """Counts failures reported by workers, all together, and deaths without a message, by role."""

    def __init__(self) -> None:
        self.none = True
        """No failure or death counts at the moment, so work changes nothing here."""
        self._workers: dict[str, _Record] = {}
        """In the order of their last failures."""
        self._unmended: set[str] = set()
        """Workers that have failed and not worked since."""
        self._resting: dict[str, _Record] = {}
        self._changed = ChangedRows[str]()
        self._reported = Streak()
        self._deaths: dict[Role, _Deaths] = {}

    # --- events ---

    def failed(self, worker: str, now_s: float) -> int:
        """Count a failure reported by a worker (by UUID); return the number of failures."""
        self.counted(now_s)
        record = self._workers[worker] = self._workers.pop(worker) if worker in self._workers else _Record()
        record.in_all += 1
        record.in_a_row += 1
        record.until_s = now_s + min(FIRST_REST_S * 2 ** (record.in_a_row - 1), LONGEST_REST_S)
        self._resting[worker] = record
        self._unmended.add(worker)
        self._changed.put.add(worker)
        if len(self._workers) > WORKERS_KEPT:
            self._forget(next(iter(self._workers)))
        return record.in_all

    def counted(self, now_s: float) -> None:
        """Count a failure after which no worker rests."""
        self._reported.add(now_s)
        self.none = False

    def worked(self, worker: str, lease: Lease | None, *, counts: bool = False) -> None:
        """Record work of a worker under this open lease: its next failure is the first in a row. `counts`: a chunk was
        counted or an update done, so the next failure of any worker is the first."""
        if counts:
            self._reported.count = 0
        if worker in self._unmended:
            self._unmended.remove(worker)
            self._workers[worker].in_a_row = 0
            self._changed.put.add(worker)
        if lease is not None and _is_good(lease):
            self._deaths.pop(lease.role, None)
        self.none = not (self._reported.count or self._deaths or self._unmended)

    def died(self, lease: Lease, how: str, now_s: float) -> None:
        """Count the end of a worker's process without a message, unless the lease was good or recovered."""
        if lease.recovered or _is_good(lease):
            return
        deaths = self._deaths.setdefault(lease.role, _Deaths())
        deaths.streak.add(now_s)
        deaths.newest.append((lease.worker, how))
        self.none = False

    def explained(self, worker: str, how: str) -> None:
        """Note how a lost worker ended."""
        for deaths in self._deaths.values():
            known = [(uuid, how if uuid == worker and was.startswith("lost") else was) for uuid, was in deaths.newest]
            deaths.newest.clear()
            deaths.newest.extend(known)

    # --- consequences ---

    @property
    def in_a_row(self) -> int:
        """Reported failures since anything was counted or learned."""
        return self._reported.count

    def hopeless(self, now_s: float, *, passing: bool = True) -> bool:
        """True if the experiment has to fail for reported failures. `passing`: the cause of the
        last failure may pass."""
        return self._reported.hopeless(now_s, passing=passing)

    def hopeless_deaths(self, now_s: float) -> str | None:
        """Reason to fail the experiment because of deaths; None if it can continue."""
        for role, deaths in self._deaths.items():
            if deaths.streak.hopeless(now_s):
                often = Counter(how for _, how in deaths.newest)
                hows = ", ".join(f"{how} ({times} times)" if times > 1 else how for how, times in often.items())
                return shortened(
                    f"{deaths.streak.count} deaths of {role}s in a row, none of which had worked for "
                    f"{GOOD_LEASE_S:g} s; the last: {hows}; what they wrote to standard error may say why"
                    + (_CONTAINED if role == "collector" else "")
                )
        return None

    def rest(self, now_s: float) -> tuple[float, int]:
        """Seconds for which the experiment still takes no workers, and the number of failures or deaths in a row."""
        streaks = (self._reported, *(deaths.streak for deaths in self._deaths.values()))
        longest = max(streaks, key=lambda streak: streak.rest_s(now_s))
        return longest.rest_s(now_s), longest.count

    def resting(self, now_s: float) -> frozenset[str]:
        """Workers (by UUID) not to be taken now."""
        self._resting = {worker: record for worker, record in self._resting.items() if now_s < record.until_s}
        return frozenset(self._resting)

    # --- over a restart ---

    def snapshot(self, now_s: float) -> FailuresSnapshot:
        """Return the state for a restarted coordinator, without its rows; times as seconds from now."""
        return FailuresSnapshot(now_s - self._reported.first_s if self._reported.count else 0.0)

    def deaths(self, now_s: float) -> list[DeathsSnapshot]:
        """Return the deaths for a restarted coordinator; times as seconds from now."""
        return [
            DeathsSnapshot(role, deaths.streak.count, now_s - deaths.streak.first_s, list(deaths.newest))
            for role, deaths in self._deaths.items()
        ]

    def rows(self, now_s: float) -> tuple[RestSnapshot, ...]:
        """All rows."""
        return tuple(self._row(worker, now_s) for worker in self._workers)

    def changes(self, now_s: float) -> Rows[RestSnapshot]:
        """Return the rows changed since the last call."""
        return self._changed.take(lambda worker: self._row(worker, now_s))

    def restore(
        self, snapshot: FailuresSnapshot, in_a_row: int, deaths: Sequence[DeathsSnapshot], now_s: float
    ) -> None:
        """Continue from a snapshot."""
        self._reported = Streak(in_a_row, now_s - snapshot.elapsed_s)
        self._workers = {m.worker: _Record(m.in_all, m.in_a_row, now_s + m.rest_s) for m in snapshot.workers}
        self._resting = dict(self._workers)
        self._unmended = {m.worker for m in snapshot.workers if m.in_a_row}
        for each in deaths:
            newest = deque(each.newest, maxlen=FAILURES_IN_A_ROW)
            self._deaths[each.role] = _Deaths(Streak(each.in_a_row, now_s - each.elapsed_s), newest)
        self.none = False

    def _forget(self, worker: str) -> None:
        del self._workers[worker]
        self._resting.pop(worker, None)
        self._unmended.discard(worker)
        self._changed.drop(worker)

    def _row(self, worker: str, now_s: float) -> RestSnapshot:
        record = self._workers[worker]
        return RestSnapshot(worker, record.in_all, record.in_a_row, max(0.0, record.until_s - now_s))


def _is_good(lease: Lease) -> bool:
    """True if the lease proves the role, so earlier deaths are forgotten."""
    return lease.worked_s - lease.ready_s >= GOOD_LEASE_S


class WorkerDemand:
    """Compares the present workers of an experiment with its wishes, and keeps the time of waiting."""

    def __init__(
        self, identity: Identity, config: ExperimentConfig, leases: LeaseBook, failures: Failures, now_s: float
    ) -> None:
        self._identity = identity
        self._leases = leases
        self._failures = failures
        evaluator, collector = config.evaluator, config.collector
        evaluates = evaluator.episodes > 0
        self._wanted: dict[Role, int] = {
            "learner": 1,
            "collector": collector.count,
            "evaluator": evaluator.count if evaluates else 0,
            "reanalyzer": 0 if reanalyzed_by_workers(config) is None else config.reanalyzer.count,
        }
        self._minimum: dict[Role, int] = {
            "learner": 1,
            "collector": collector.minimum,
            "evaluator": int(evaluates),
            "reanalyzer": 0,
        }
        """Without these the experiment cannot work."""
        self._waiting_for: str | None = None
        self._waits_since_s = now_s

    def demand(self, now_s: float, *, started: bool = True, roles: Sequence[Role] = ROLES) -> Demand | None:
        """Count the missing workers of these roles; None if no worker is missing."""
        missing: dict[Role, int] = {
            role: max(self._wanted[role] - len(self._leases.by_index[role]), 0) for role in roles
        }
        if not any(missing.values()):
            return None
        at_work = {role: self._leases.count_staying(role) for role in roles}
        lacking: dict[Role, int] = {
            role: min(max(self._minimum[role] - at_work[role], 0), missing[role]) for role in roles
        }
        return Demand(
            self._identity.id,
            self._identity.priority,
            self._identity.submitted,
            lacking,
            missing,
            started=started,
            patient=self._waiting_for is None or now_s - self._waits_since_s < PATIENCE_S,
            yields=self._waiting_for is None or may_be_overtaken(now_s - self._waits_since_s),
            resting=self._failures.resting(now_s),
        )

    def holding(self, *, keeps: bool) -> Holding:
        """Return the workers to spare (none if it `keeps` all), and the number already returning."""
        surplus: dict[Role, int] = {
            role: 0 if keeps else max(self._leases.count_staying(role) - self._minimum[role], 0) for role in ROLES
        }
        leaving: dict[Role, int] = {role: self._leases.count(role) - self._leases.count_staying(role) for role in ROLES}
        identity = self._identity
        return Holding(identity.id, identity.name, identity.priority, identity.submitted, surplus, leaving)

    def wait(self, reason: str | None, now_s: float) -> bool:
        """Set the scheduler's reason for waiting, or None; return True if a wait begins."""
        news = reason is not None and self._waiting_for is None
        if news:
            self._waits_since_s = now_s
        self._waiting_for = reason
        return news

    def explain(self, now_s: float, *, running: bool) -> str | None:
        """Explain the wait, the work with too few workers, or the pause after failures."""
        if self._waiting_for is not None:
            return self._waiting_for
        rest_s, in_a_row = self._failures.rest(now_s)
        if rest_s:
            return f"takes no workers for {rest_s:.0f} s: {in_a_row} failures in a row"
        counts = [(self._leases.count_staying(role), self._wanted[role], role) for role in _MAY_LACK]
        lacks = [f"{held} of {wanted} {role}s" for held, wanted, role in counts if held < wanted]
        return f"runs with {' and '.join(lacks)}" if running and lacks else None


def may_be_overtaken(waited_s: float) -> bool:
    """True if workers too few for this experiment go to others now.

    So workers are kept idle for at most half of the time, and the wait ends: once free workers are kept for longer than
    other runs take, all the workers become free. If no run takes longer than D seconds, the experiment begins within 8
    D seconds (or three minutes, if longer).
    """
    length_s = OVERTAKEN_FIRST_S
    while waited_s >= 2 * length_s:
        waited_s -= 2 * length_s
        length_s *= 2
    return waited_s < length_s


@dataclass(kw_only=True)
class ExperimentWorkers:
    """Opens and closes leases, and informs the parts that depend on a worker."""

    identity: Identity
    config_json: str
    leases: LeaseBook
    replay: ReplayAccounting
    flow: FlowControl
    reanalysis: ReanalysisBook
    dispatch: EvaluationDispatch
    callbacks: CallbackBook

    @property
    def policy_file(self) -> str:
        """Name inside policy/."""
        return os.path.basename(self.identity.policy_file)

    def join(self, holder: LeaseHolder) -> list[Step]:
        """The scheduler has chosen a worker for this experiment."""
        lease = self.leases.open(holder)
        number, role = lease.number, lease.role
        if role == "collector":
            self.replay.ledger.open(number, holder.worker, holder.incarnation)
        checkpoint, replay, steps = self._start(role)
        message = Assign(
            lease=number,
            experiment=self.identity.id,
            name=self.identity.name,
            run_dir=self.identity.run_dir,
            config_json=self.config_json,
            index=lease.index,
            generation=lease.generation,
            policy_file=self.policy_file,
            epoch=self.flow.epoch,
            checkpoint=checkpoint,
            exploration=self.flow.exploration(),
            replay=replay,
            reanalyses=self.reanalysis.all_for_new_learner() if role == "learner" else [],
            policy=self.identity.policy if role == "learner" else "",
            callbacks=self.callbacks.states if role == "learner" else {},
            changes=self.callbacks.all_changes if role == "learner" else {},
            task=self.dispatch.commander.curriculum.task if role == "collector" else Task(),
        )
        text = f"{role} {lease.worker} joins as {role} {lease.index}"
        return [*steps, SendToLease(number, message), self._log(text), self._happened("worker_joined", lease, text)]

    def lend(self, role: Role, count: int, to: str) -> list[Step]:
        """Ask this number of workers to end their work, for another experiment; the highest index goes first."""
        steps: list[Step] = []
        reason = f"{to} waits for {'an' if role == 'evaluator' else 'a'} {role}"
        for lease in self.leases.last_staying(role, count):
            told = self._send_drain(lease, reason)
            steps += [self._log(f"{role} {lease.worker} goes back to the herd: {reason}"), told]
        return steps

    def drain(self, role: Role, reason: str) -> list[Step]:
        """Ask all workers of a role to let go."""
        return [self._send_drain(lease, reason) for lease in self.leases.of(role)]

    def drained(self, lease: Lease) -> list[Step]:
        """A worker has let go."""
        self.leases.close(lease.number)
        left = self._happened("worker_left", lease, f"{lease.role} {lease.worker} has let go")
        return [*self._do_without(lease), Release(lease.number), left]

    def dismiss(self, role: Role) -> list[Step]:
        """End the leases of those workers of a role that did not end their work in time."""
        steps: list[Step] = []
        for lease in self.leases.of(role):
            self.leases.close(lease.number)
            self._lost(lease)
            steps += self._do_without(lease)
            text = f"{lease.role} {lease.worker} did not let go in time and is dismissed"
            steps += [self._log(text, "warning"), self._happened("worker_left", lease, text)]
            steps.append(Release(lease.number, dismiss=True))
        return steps

    def failed(self, lease: Lease, error: str) -> list[Step]:
        """Handle an exception that ended a worker's work. The worker then drains, or leaves the herd."""
        self.leases.set_draining(lease, ready=False)
        return [self._happened("worker_failed", lease, error), *self._do_without(lease)]

    def gone(self, number: int, why: str, *, handed_in: bool, died: bool = False) -> list[Step]:
        """A worker was lost, left, or started a new incarnation."""
        lease = self.leases.close(number)
        if lease is None:
            return []
        text = f"{lease.role} {lease.worker} is gone: {why}"
        if not handed_in and self._lost(lease):
            text += f"; {LOST}"
        event = self._happened("worker_died" if died else "worker_left", lease, text)
        return [self._log(text, "warning"), event, *self._do_without(lease)]

    def back(self, lease: Lease, counters: Counters) -> list[Step]:
        """Repeat possibly lost messages to a worker that lost its connection, or after a restart of the coordinator."""
        number = lease.number
        text = f"{lease.role} {lease.worker} is back"
        steps: list[Step] = [self._log(text), self._happened("worker_back", lease, text)]
        if lease.role == "learner":
            self.flow.learner_back()
        if lease.draining:
            return [*steps, SendToLease(number, Drain(number, "as it was told before"))]
        if not lease.ready:
            return steps
        if lease.role == "collector":
            return [*steps, *self.dispatch.send_opponents([number]), *self.flow.repeat(number)]
        if lease.role == "reanalyzer":
            return [*steps, *self.reanalysis.repeat(number)]
        if lease.role == "learner" and self.dispatch.commander.ending is not None and not self.flow.is_open:
            steps += self.stop_training()
        return [*steps, *self.dispatch.repeat(lease, counters)]

    def stop_training(self) -> list[Step]:
        """Tell the learner, if present, to do no further update; it still saves on request."""
        learner = self.leases.learner
        return [] if learner is None else [SendToLease(learner.number, StopTraining(learner.number))]

    def _start(self, role: Role) -> tuple[str | None, list[IndexedChunk], list[Step]]:
        """Return the start of a worker: the newest checkpoint and all live replay for a learner, nothing for other
        roles."""
        if role != "learner":
            return None, [], []
        record, id = self.dispatch.commander.last_record, self.identity.id
        if record is None:
            return None, *self.flow.new_learner(0)
        replay, steps = self.flow.new_learner(record.train_iter)
        return record.file, replay, [*steps, RewindCurves(id, record.train_iter)]

    def _lost(self, lease: Lease) -> bool:
        """Count a worker that ended without handing in its data; return True if data may be lost."""
        lost = lease.role == "collector" and lease.ready
        if lost:
            self.replay.ledger.lost_collector()
        return lost

    def _do_without(self, lease: Lease) -> list[Step]:
        """The work of this worker for the experiment is over."""
        match lease.role:
            case "collector":
                return self.flow.collector_gone(lease.number)
            case "evaluator":
                return self.dispatch.evaluator_gone(lease.number)
            case "reanalyzer":
                return self.reanalysis.gone(lease.number)
            case "learner":
                self.flow.close()
                return []

    def _send_drain(self, lease: Lease, reason: str) -> SendToLease:
        self.leases.set_draining(lease, ready=lease.ready)
        return SendToLease(lease.number, Drain(lease.number, shortened(reason)))

    def _log(self, text: str, level: Level = "info") -> LogLine:
        return LogLine(self.identity.id, text, level)

    def _happened(self, kind: EventKind, lease: Lease, text: str) -> Happened:
        return Happened(self.identity.id, kind, text, lease.role, lease.worker)
