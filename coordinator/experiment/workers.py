"""The workers of an experiment: demand, joining, return and departure."""

from __future__ import annotations

import os
from collections.abc import Sequence

from remuda.config.schema import ExperimentConfig
from remuda.coordinator.effects import Release, RewindCurves, SendToLease, Step
from remuda.coordinator.experiment.collecting import Collecting
from remuda.coordinator.experiment.policy import PolicyTraining
from remuda.coordinator.failures import Failures
from remuda.coordinator.leases import Lease, LeaseBook, several
from remuda.coordinator.scheduler import Demand, Holding
from remuda.logbook.series import EventKind
from remuda.training.effects import Happened, Level, LogLine
from remuda.training.run_snapshot import Identity
from remuda.training.snapshot import LeaseHolder
from remuda.wire.messages import (
    ROLES,
    Assign,
    CheckpointFile,
    Drain,
    IndexedChunk,
    InferenceCallers,
    InferenceJoined,
    InferenceServer,
    InferenceServers,
    Role,
    StopTraining,
    Task,
    shortened,
)

PATIENCE_S = 3.0
"""Time that an experiment waits for new workers before running experiments must return workers: long enough for a herd
to assemble, or for a nanny to restart a worker."""
OVERTAKEN_FIRST_S = 60.0
"""Length of the first period in which later experiments may overtake an experiment. In the next period of the same
length, free workers are kept, and so on, with doubled lengths."""

_MAY_LACK: tuple[Role, ...] = ("collector", "reanalyzer", "inference")
"""A run continues even without any worker of these roles."""
LOST = "the steps that it had taken and not announced are lost, at most two chunks: how many is not known"
"""Log line for a killed collector: the unfinished chunk is lost, and maybe a chunk under way."""


class WorkerDemand:
    """Compares the present workers of an experiment with its wishes, and keeps the time of waiting."""

    def __init__(
        self, identity: Identity, config: ExperimentConfig, leases: LeaseBook, failures: Failures, now_s: float
    ) -> None:
        self._identity = identity
        self._leases = leases
        self._failures = failures
        evaluator, collector = config.evaluator, config.collector
        evaluates, learners = evaluator.episodes > 0, max(len(config.policies), 1)
        self._wanted: dict[Role, int] = {
            "learner": learners,
            "collector": collector.count,
            "evaluator": evaluator.count if evaluates else 0,
            "reanalyzer": config.reanalyzers,
            "inference": config.shared_inference.workers,
        }
        self._minimum: dict[Role, int] = {
            "learner": learners,
            "collector": collector.minimum,
            "evaluator": int(evaluates),
            "reanalyzer": 0,
            "inference": min(config.shared_inference.workers, 1),
        }
        """Without these the experiment cannot work."""
        self._waiting_for: str | None = None
        self._waits_since_s = now_s

    def demand(
        self, now_s: float, *, started: bool = True, roles: Sequence[Role] = ROLES, preempts: bool = True
    ) -> Demand | None:
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
            preempts=preempts,
            resting=self._failures.resting(now_s),
        )

    def holding(self, *, keeps: bool, leaves: bool, gives_all: bool) -> Holding:
        """Return the workers to spare (zero if the experiment `keeps` all), the workers already returning (all if it
        `leaves`), and the workers that a preemption would give back."""
        there: dict[Role, int] = {role: self._leases.count(role) for role in ROLES}
        staying: dict[Role, int] = {role: self._leases.count_staying(role) for role in ROLES}
        surplus: dict[Role, int] = {role: 0 if keeps else max(staying[role] - self._minimum[role], 0) for role in ROLES}
        leaving: dict[Role, int] = there if leaves else {role: there[role] - staying[role] for role in ROLES}
        identity = self._identity
        return Holding(
            identity.id,
            identity.name,
            identity.priority,
            identity.submitted,
            surplus,
            leaving,
            preemptible=there if gives_all else {},
        )

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
        lacks = [f"{held} of {wanted} {several(role)}" for held, wanted, role in counts if held < wanted]
        return f"runs with {' and '.join(lacks)}" if running and lacks else None


def may_be_overtaken(waited_s: float) -> bool:
    """True if workers too few for this experiment go to others now.

    Workers stay idle for at most half of the time, and the wait ends: once free workers are kept for longer than a run
    takes, all the workers become free. If no run takes longer than D seconds, the experiment begins within 8 D seconds
    (or three minutes, if longer).
    """
    length_s = OVERTAKEN_FIRST_S
    while waited_s >= 2 * length_s:
        waited_s -= 2 * length_s
        length_s *= 2
    return waited_s < length_s


class InferenceBook:
    """Tells collectors where inference workers listen: all of them, with each change. Nothing of it is journaled.

    Inference workers learn the keys of all collectors when they join, and each change. Whoever registers again joins
    again, so a restarted coordinator knows all before long.
    """

    def __init__(self) -> None:
        self._callers: dict[int, str] = {}
        """Keys of collectors by lease."""
        self._servers: dict[int, InferenceServer] = {}
        """Inference workers by lease."""

    def joined(self, lease: Lease, message: InferenceJoined) -> list[Step]:
        """A collector or an inference worker has joined, perhaps not for the first time."""
        if lease.role == "collector":
            known, self._callers[lease.number] = self._callers.get(lease.number), message.key
            news = [] if known == message.key else self._tell_servers([message.key], [known] if known else [])
            return [*news, self._servers_for(lease.number)]
        if lease.role == "inference" and message.server is not None:
            is_new = self._servers.get(lease.number) != message.server
            self._servers[lease.number] = message.server
            everybody = InferenceCallers(lease.number, sorted(self._callers.values()), whole=True)
            return [SendToLease(lease.number, everybody), *(self._tell_callers() if is_new else [])]
        return []

    def gone(self, lease: int) -> list[Step]:
        """A lease is over."""
        if (key := self._callers.pop(lease, None)) is not None:
            return self._tell_servers([], [key])
        return [] if self._servers.pop(lease, None) is None else self._tell_callers()

    def _tell_servers(self, keys: list[str], gone: list[str]) -> list[Step]:
        return [SendToLease(lease, InferenceCallers(lease, keys, gone)) for lease in sorted(self._servers)]

    def _tell_callers(self) -> list[Step]:
        return [self._servers_for(lease) for lease in sorted(self._callers)]

    def _servers_for(self, lease: int) -> Step:
        return SendToLease(lease, InferenceServers(lease, [server for _, server in sorted(self._servers.items())]))


class ExperimentWorkers:
    """Opens and closes leases, and informs the parts that depend on a worker. A learner works for the policy with its
    index, all other workers work for all policies."""

    def __init__(
        self,
        identity: Identity,
        leases: LeaseBook,
        policies: Sequence[PolicyTraining],
        collecting: Collecting,
    ) -> None:
        self._identity = identity
        self._leases = leases
        self._policies = policies
        self._collecting = collecting
        self.inference = InferenceBook()
        self._shared = policies[0].config.shared_inference

    def join(self, holder: LeaseHolder) -> list[Step]:
        """The scheduler has chosen a worker for this experiment."""
        lease = self._leases.open(holder)
        number, role, identity = lease.number, lease.role, self._identity
        if role == "collector":
            for each in self._policies:
                each.replay.ledger.open(number, holder.worker, holder.incarnation)
        policy, is_learner = self._policies[lease.policy_index], role == "learner"
        checkpoint, replay, steps = self._start(policy) if is_learner else (None, [], list[Step]())
        book, is_shared = policy.callbacks.book, bool(identity.policy) and not is_learner
        message = Assign(
            lease=number,
            experiment=identity.id,
            name=identity.name,
            run_dir=identity.run_dir,
            config_json=identity.config_json,
            index=0 if is_learner else lease.index,
            generation=lease.generation,
            policy_file=_policy_file(policy),
            epoch=policy.flow.epoch,
            checkpoint=checkpoint,
            exploration=policy.exploration(),
            replay=replay,
            reanalyses=policy.reanalysis.all_for_new_learner() if is_learner else [],
            policy=policy.identity.policy if is_learner else "",
            policies={each.identity.policy: _policy_file(each) for each in self._policies} if is_shared else {},
            others=[each.acting() for each in self._policies[1:]] if is_shared else [],
            callbacks=book.states if is_learner else {},
            changes=book.all_changes if is_learner else {},
            task=policy.commander.curriculum.task if role == "collector" else Task(),
        )
        text = f"{role} {lease.worker} joins as {role} {lease.index}"
        if self._shared.decided and is_learner and lease.generation == 0:
            steps = [*steps, self._log(f"inference.count is auto: {self._shared.decided}")]
        return [*steps, SendToLease(number, message), self._log(text), self._happened("worker_joined", lease, text)]

    def lend(self, role: Role, count: int, to: str) -> list[Step]:
        """Ask this number of workers to end their work, for another experiment; the highest index goes first."""
        steps: list[Step] = []
        reason = f"{to} waits for {'an' if role == 'evaluator' else 'a'} {role}"
        for lease in self._leases.last_staying(role, count):
            told = self._send_drain(lease, reason)
            steps += [self._log(f"{role} {lease.worker} goes back to the herd: {reason}"), told]
        return steps

    def drain(self, role: Role, reason: str, *, preparing: bool = False) -> list[Step]:
        """Ask all workers of a role to let go, or only those still `preparing`."""
        return [self._send_drain(lease, reason) for lease in self._leases.of(role) if not (preparing and lease.ready)]

    def drained(self, lease: Lease) -> list[Step]:
        """A worker has let go."""
        self._leases.close(lease.number)
        left = self._happened("worker_left", lease, f"{lease.role} {lease.worker} has let go")
        return [*self._do_without(lease), Release(lease.number), left]

    def dismiss(self, role: Role) -> list[Step]:
        """End the leases of all workers of a role after the time limit for ending the work."""
        steps: list[Step] = []
        for lease in self._leases.of(role):
            self._leases.close(lease.number)
            self._lost(lease)
            steps += self._do_without(lease)
            text = f"{lease.role} {lease.worker} did not let go in time and is dismissed"
            steps += [self._log(text, "warning"), self._happened("worker_left", lease, text)]
            steps.append(Release(lease.number, dismiss=True))
        return steps

    def failed(self, lease: Lease, error: str) -> list[Step]:
        """Handle an exception that ended a worker's work. The worker then drains, or leaves the herd."""
        self._leases.set_draining(lease, ready=False)
        return [self._happened("worker_failed", lease, error), *self._do_without(lease)]

    def gone(self, number: int, why: str, *, handed_in: bool, died: bool = False) -> list[Step]:
        """A worker was lost, left, or started a new incarnation."""
        lease = self._leases.close(number)
        if lease is None:
            return []
        text = f"{lease.role} {lease.worker} is gone: {why}"
        if not handed_in and self._lost(lease):
            text += f"; {LOST}"
        event = self._happened("worker_died" if died else "worker_left", lease, text)
        return [self._log(text, "warning"), event, *self._do_without(lease)]

    def back(self, number: int, now_s: float) -> list[Step]:
        """Repeat possibly lost messages to a worker with a new connection, or after a restart of the coordinator."""
        lease = self._leases.open_leases.get(number)
        if lease is None:
            return []
        text = f"{lease.role} {lease.worker} is back"
        steps: list[Step] = [self._log(text), self._happened("worker_back", lease, text)]
        policy = self._policies[lease.policy_index]
        if lease.role == "learner":
            policy.flow.learner_back()
        if lease.draining:
            return [*steps, SendToLease(number, Drain(number, "as it was told before"))]
        if not lease.ready:
            return steps
        match lease.role:
            case "collector":
                return [
                    *steps,
                    *self._policies[0].dispatch.send_opponents([number]),
                    *self._collecting.repeat([number]),
                ]
            case "evaluator":
                counters = policy.counters(now_s)
                return [*steps, *(step for each in self._policies for step in each.dispatch.repeat(lease, counters))]
            case "reanalyzer" | "inference":  # the second joins again
                return [*steps, *(step for each in self._policies for step in each.reanalysis.repeat(number))]
            case "learner":
                if policy.commander.ending is not None and not policy.flow.is_open:
                    steps += self.stop_training(policy)
                again = [*policy.callbacks.repeat(number), *policy.dispatch.repeat(lease, policy.counters(now_s))]
                return [*steps, *again]

    def stop_training(self, policy: PolicyTraining) -> list[Step]:
        """Tell the learner of a policy, if present, to do no further update; it still saves on request."""
        learner = self._leases.learner_of(policy.policy_index)
        return [] if learner is None else [SendToLease(learner.number, StopTraining(learner.number))]

    def _start(self, policy: PolicyTraining) -> tuple[CheckpointFile | None, list[IndexedChunk], Sequence[Step]]:
        """Return the start of a learner: the newest checkpoint and all live replay."""
        record = policy.commander.last_record
        replay, steps = policy.flow.new_learner(0 if record is None else record.train_iter)
        if record is None:
            return None, replay, policy.own(steps)
        start = CheckpointFile(record.file, record.sha256)
        return start, replay, policy.own([*steps, RewindCurves(self._identity.id, record.train_iter)])

    def _lost(self, lease: Lease) -> bool:
        """Count a worker with an end before handing in all data; return True if data may be lost."""
        lost = lease.role == "collector" and lease.ready
        if lost:
            for policy in self._policies:
                policy.replay.ledger.lost_collector()
        return lost

    def _do_without(self, lease: Lease) -> list[Step]:
        """The work of this worker for the experiment is over."""
        match lease.role:
            case "collector":
                return [*self._collecting.gone(lease.number), *self.inference.gone(lease.number)]
            case "evaluator":
                return [step for policy in self._policies for step in policy.dispatch.evaluator_gone(lease.number)]
            case "reanalyzer":
                return [step for each in self._policies for step in each.own(each.reanalysis.gone(lease.number))]
            case "inference":
                return self.inference.gone(lease.number)
            case "learner":
                self._policies[lease.policy_index].flow.close()
                return []

    def _send_drain(self, lease: Lease, reason: str) -> SendToLease:
        self._leases.set_draining(lease, ready=lease.ready)
        return SendToLease(lease.number, Drain(lease.number, shortened(reason)))

    def _log(self, text: str, level: Level = "info") -> LogLine:
        return LogLine(self._identity.id, text, level)

    def _happened(self, kind: EventKind, lease: Lease, text: str) -> Happened:
        return Happened(self._identity.id, kind, text, lease.role, lease.worker)


def _policy_file(policy: PolicyTraining) -> str:
    """Name inside policy/."""
    return os.path.basename(policy.identity.policy_file)
