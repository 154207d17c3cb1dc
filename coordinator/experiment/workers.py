"""The workers of one experiment: how they join, are lost, come back, are asked to let go, and leave."""

from __future__ import annotations

import os
from dataclasses import dataclass

from remuda.coordinator.effects import Release, RewindCurves, SendToLease, Step
from remuda.coordinator.experiment.callbacks import CallbackDispatch
from remuda.coordinator.experiment.dispatch import EvaluationDispatch
from remuda.coordinator.experiment.flow_control import FlowControl
from remuda.coordinator.experiment.reanalysis import ReanalysisBook
from remuda.coordinator.leases import Lease, LeaseBook
from remuda.logbook.series import EventKind
from remuda.training.effects import Happened, Level, LogLine
from remuda.training.identity import Identity
from remuda.training.replay.accounting import ReplayAccounting
from remuda.training.snapshot import LeaseHolder
from remuda.wire.messages import Assign, Counters, Drain, IndexedChunk, Role, StopTraining, Task, shortened

LOST = "the steps that it had taken and not announced are lost, at most two chunks: how many is not known"
"""The log line for a killed collector: it loses the chunk that it was filling, and maybe one that was on its way."""


@dataclass(kw_only=True)
class ExperimentWorkers:
    """Opens and closes leases, and informs the parts that count on a worker."""

    identity: Identity
    config_json: str
    leases: LeaseBook
    replay: ReplayAccounting
    flow: FlowControl
    reanalysis: ReanalysisBook
    dispatch: EvaluationDispatch
    callbacks: CallbackDispatch

    @property
    def policy_file(self) -> str:
        """Name inside policy/."""
        return os.path.basename(self.identity.policy_file)

    def join(self, holder: LeaseHolder) -> list[Step]:
        """The scheduler has chosen a worker for this experiment."""
        lease = self.leases.open(holder)
        number, role = lease.number, lease.role
        if role == "collector":
            self.replay.open_lease(number, holder.worker, holder.incarnation)
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
            callbacks=self.callbacks.book.states if role == "learner" else {},
            changes=self.callbacks.changes if role == "learner" else {},
            task=self.dispatch.commander.curriculum.task if role == "collector" else Task(),
        )
        text = f"{role} {lease.worker} joins as {role} {lease.index}"
        return [*steps, SendToLease(number, message), self._say(text), self._happened("worker_joined", lease, text)]

    def lend(self, role: Role, count: int, to: str) -> list[Step]:
        """Ask this number of workers to let go, for another experiment that lacks them; those with the highest index go
        first."""
        steps: list[Step] = []
        reason = f"{to} waits for {'an' if role == 'evaluator' else 'a'} {role}"
        for lease in self.leases.last_staying(role, count):
            told = self._tell_to_drain(lease, reason)
            steps += [self._say(f"{role} {lease.worker} goes back to the herd: {reason}"), told]
        return steps

    def drain(self, role: Role, reason: str) -> list[Step]:
        """Ask all workers of a role to let go."""
        return [self._tell_to_drain(lease, reason) for lease in self.leases.of(role)]

    def drained(self, lease: Lease) -> list[Step]:
        """A worker has let go."""
        self.leases.close(lease.number)
        left = self._happened("worker_left", lease, f"{lease.role} {lease.worker} has let go")
        return [*self._do_without(lease), Release(lease.number), left]

    def dismiss(self, role: Role) -> list[Step]:
        """End the leases of those workers of a role that did not let go in time."""
        steps: list[Step] = []
        for lease in self.leases.of(role):
            self.leases.close(lease.number)
            self._lost(lease)
            steps += self._do_without(lease)
            text = f"{lease.role} {lease.worker} did not let go in time and is dismissed"
            steps += [self._say(text, "warning"), self._happened("worker_left", lease, text)]
            steps.append(Release(lease.number, dismiss=True))
        return steps

    def failed(self, lease: Lease, error: str) -> list[Step]:
        """An exception has ended a worker's work. Its next message says that it has let go, or it leaves the herd."""
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
        return [self._say(text, "warning"), event, *self._do_without(lease)]

    def back(self, number: int, counters: Counters) -> list[Step]:
        """A worker had lost its connection, or the coordinator was restarted: send again what may be lost."""
        lease = self.leases.find(number)
        if lease is None:
            return []
        text = f"{lease.role} {lease.worker} is back"
        steps: list[Step] = [self._say(text), self._happened("worker_back", lease, text)]
        if lease.role == "learner":
            self.flow.learner_back()
        if lease.draining:
            return [*steps, SendToLease(number, Drain(number, "as it was told before"))]
        if not lease.ready:
            return steps
        if lease.role == "collector":
            return [*steps, *self.dispatch.tell_opponents([number]), *self.flow.repeat(number)]
        if lease.role == "reanalyzer":
            return [*steps, *self.reanalysis.repeat(number)]
        steps += self.callbacks.repeat(lease)
        if lease.role == "learner" and self.dispatch.commander.ending is not None and not self.flow.is_open:
            steps += self.stop_training()
        return [*steps, *self.dispatch.repeat(lease, counters)]

    def stop_training(self) -> list[Step]:
        """Tell the learner, if there is one, to do no further update; it still saves what it is asked to save."""
        learner = self.leases.learner
        return [] if learner is None else [SendToLease(learner.number, StopTraining(learner.number))]

    def _start(self, role: Role) -> tuple[str | None, list[IndexedChunk], list[Step]]:
        """What a worker starts with: a learner with the newest checkpoint and all live replay, others with nothing."""
        if role != "learner":
            return None, [], []
        record, id = self.dispatch.commander.last_record, self.identity.id
        if record is None:
            return None, *self.flow.new_learner(0)
        replay, steps = self.flow.new_learner(record.train_iter)
        return record.file, replay, [*steps, RewindCurves(id, record.train_iter)]

    def _lost(self, lease: Lease) -> bool:
        """A worker has ended before it has handed in what it had. Whether it had something."""
        lost = lease.role == "collector" and lease.ready
        if lost:
            self.replay.lost_collector()
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

    def _tell_to_drain(self, lease: Lease, reason: str) -> SendToLease:
        self.leases.set_draining(lease, ready=lease.ready)
        return SendToLease(lease.number, Drain(lease.number, shortened(reason)))

    def _say(self, text: str, level: Level = "info") -> LogLine:
        return LogLine(self.identity.id, text, level)

    def _happened(self, kind: EventKind, lease: Lease, text: str) -> Happened:
        return Happened(self.identity.id, kind, text, lease.role, lease.worker)
