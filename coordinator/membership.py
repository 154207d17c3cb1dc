"""The herd: workers join, come back and leave; lost or stuck workers are dropped."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from remuda.coordinator.assignments import Assignments
from remuda.coordinator.effects import FindRoom, ForgetPeer, Release, Reply, SendToPeer, Step
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.registry import Registry, Worker
from remuda.training.effects import Level, LogLine
from remuda.wire.keys.authorized import Grants
from remuda.wire.messages import (
    PROTOCOL_VERSION,
    ROLES,
    Assign,
    Beat,
    BeatHeard,
    Grant,
    Leave,
    Phase,
    Register,
    Registered,
    Rejected,
    Role,
    WorkerState,
    WorkerStatus,
)

LOOK_INTERVAL_S = 0.25
"""Time between two searches of the whole herd for lost or stuck workers."""
ROOM_AGAIN_S = 1.0
"""Time between two searches for room on the disk of a run that is not held up."""
LOST_KEPT = 1_000
"""Number of lost workers to remember, since they may come back in another incarnation."""
_LIMITS: Mapping[Phase, str] = {"preparing": "prepare_s", "saving": "save_s"}
"""The settings with a run's time limits for these activities."""
_STATES: tuple[WorkerState, ...] = ("idle", "busy", "stuck", "draining")
"""States of a registered worker."""
AWAY_S = 3.0
"""A search with this much delay means a pause of this process: a stop signal, or a hanging disk. Messages sent during
this time have yet to be read."""


@dataclass(frozen=True)
class FilesOffer:
    """The runs folder, the token by which a worker recognizes the folder, and the port for file streams."""

    runs_dir: str = ""
    token: str = ""
    token_there: bool = False
    stream_port: int = 0
    grants: Grants | None = None
    """None: in tests without files."""

    def granted(self, assign: Assign, worker: Worker) -> Assign:
        """Add the grant for the stream server to a lease, if the worker needs one."""
        if self.grants is None or worker.role == "learner":
            return assign
        grant = Grant(
            os.path.normpath(assign.run_dir), worker.role, worker.uuid, worker.incarnation, assign.policy_file
        )
        return replace(assign, grant=self.grants.seal(grant))


class Membership:
    """Registers and removes workers: a new worker gets work if needed, a removed one leaves no open lease."""

    def __init__(self, coordinator: str, registry: Registry, assignments: Assignments, files: FilesOffer) -> None:
        """`coordinator` is the id for workers, `files` their way to the files of runs."""
        self._coordinator = coordinator
        self._files = files
        self._registry = registry
        self._assignments = assignments
        self._look_due_s: float | None = None
        self._lost: dict[str, int] = {}
        """The last lease of each lost worker (by UUID)."""

    # --- they come ---

    def register(self, message: Register, peer: bytes, now_s: float) -> list[Step]:
        """Register a new worker, or a known worker over a new connection."""
        refusal = _refusal(message, peer)
        if refusal is not None:
            return [Reply(refusal)]
        admission = self._registry.admit(message, peer, now_s)
        worker = admission.worker
        if worker is None:
            return [Reply(Rejected("superseded", admission.refusal or "refused"))]
        if admission.back:
            return [*_hang_up(admission.former_peer, peer), *self._welcome_back(worker, message, now_s)]
        steps: list[Step] = [self._registered(message.lease)]
        if admission.superseded is not None:
            former = admission.superseded
            how = message.former_exit or "it was started again"
            why = f"it ended with {how} and was started again" if message.former_exit else how
            steps += self._assignments.end(former, why, now_s, died=how)
            steps.append(SendToPeer(former.peer, Leave(f"incarnation {message.incarnation} has taken over")))
        elif message.former_exit:
            steps += self._explain(worker, message.former_exit)
        text = f"{message.role} {message.worker} incarnation {message.incarnation} joins the herd"
        steps.append(LogLine(None, f"{text} (pid {message.pid} on {message.host})"))
        return steps + self._assignments.schedule(now_s)

    def _welcome_back(self, worker: Worker, message: Register, now_s: float) -> list[Step]:
        """Handle a worker with a new connection, perhaps from the time of the previous coordinator. The worker keeps
        the lease if both sides agree, and gets messages again."""
        experiment = self._assignments.experiment_of(worker)
        if experiment is not None and worker.lease == message.lease:
            return [self._registered(message.lease, goes_on=True), *experiment.back(worker.lease, now_s)]
        ended = self._assignments.end(worker, "it does not hold its lease any more", now_s)
        return [self._registered(message.lease), *ended, *self._assignments.schedule(now_s)]

    def _explain(self, worker: Worker, exit: str) -> list[Step]:
        """Log how a lost worker ended, according to the nanny, when its next incarnation registers."""
        experiment = self._assignments.find(self._lost.pop(worker.uuid, 0))
        if not isinstance(experiment, Experiment):
            return []
        experiment.failures.explained(worker.uuid, exit)
        return [LogLine(experiment.identity.id, f"{worker.role} {worker.uuid} was lost as it ended with {exit}")]

    def _registered(self, lease: int, *, goes_on: bool = False) -> Reply:
        interval_s = self._registry.beat_interval_s
        files = self._files
        return Reply(
            Registered(
                self._coordinator,
                interval_s,
                lease,
                goes_on,
                runs_dir=files.runs_dir,
                token=files.token,
                token_there=files.token_there,
                stream_port=files.stream_port,
            )
        )

    # --- they are there ---

    def beat(self, worker: Worker, message: Beat, now_s: float) -> list[Step]:
        """Handle a beat: the worker is alive, with or without progress."""
        steps: list[Step] = []
        if self._registry.beat(worker, message, now_s, is_held_up=self._assignments.is_held_up(worker)):
            steps.append(self._log_of(worker, f"{worker.role} {worker.uuid} makes progress again"))
        return [Reply(BeatHeard(self._registry.beat_interval_s)), *steps, *self._find_room(worker, message, now_s)]

    def _find_room(self, worker: Worker, message: Beat, now_s: float) -> list[Step]:
        """Look for disk space if a worker cannot write data; the whole run is then held up."""
        run = self._assignments.experiment_of(worker) if message.lacks_bytes else None
        if run is None or run.held_up is not None or now_s - run.room_sought_s < ROOM_AGAIN_S:
            return []
        run.room_sought_s = now_s
        return [FindRoom(run.identity.id, message.lacks_bytes)]

    def release(self, release: Release, now_s: float) -> list[Step]:
        """An experiment gives up a worker."""
        worker = self._registry.holders.get(release.lease)
        if worker is None:
            return []
        self._assignments.take_back(worker)
        why = "it did not let go when its experiment ended"
        return self._assignments.dismiss(worker, why, now_s) if release.dismiss else []

    def status(self, now_s: float) -> list[WorkerStatus]:
        """Return the status of all workers for `remuda status`."""
        return [self._status(worker, now_s) for worker in self._registry]

    def counts(self) -> dict[Role, dict[WorkerState, int]]:
        """Return the number of workers by role and state, zeros included and lost workers excluded."""
        counts: dict[Role, dict[WorkerState, int]] = {role: dict.fromkeys(_STATES, 0) for role in ROLES}
        for worker in self._registry:
            draining = worker.state == "busy" and self._drains(worker)
            counts[worker.role]["draining" if draining else worker.state] += 1
        return counts

    def _drains(self, worker: Worker) -> bool:
        experiment = self._assignments.experiment_of(worker)
        lease = None if experiment is None else experiment.leases.open_leases.get(worker.lease)
        return lease is not None and lease.draining

    def _status(self, worker: Worker, now_s: float) -> WorkerStatus:
        experiment = self._assignments.experiment_of(worker)
        if experiment is None:
            return worker.status(now_s)
        shares = (policy.vitals.work_share(worker.uuid) for policy in experiment.policies)
        draining, work_share = self._drains(worker), next((share for share in shares if share is not None), None)
        return worker.status(now_s, experiment=experiment.identity.id, draining=draining, work_share=work_share)

    # --- they go ---

    def goodbye(self, worker: Worker, reason: str, now_s: float) -> list[Step]:
        """The worker leaves by itself."""
        steps = self._assignments.end(worker, f"it left ({reason})", now_s, handed_in=True)
        self._registry.remove(worker)
        steps.append(LogLine(None, f"{worker.role} {worker.uuid} leaves the herd: {reason}"))
        return steps + self._assignments.schedule(now_s)

    def tick(self, now_s: float) -> list[Step]:
        """Find lost, stuck and overdue workers. Called periodically."""
        due_s = now_s if self._look_due_s is None else self._look_due_s
        if now_s < due_s:
            return []
        self._look_due_s = now_s + LOOK_INTERVAL_S
        if now_s - due_s > AWAY_S:
            self._registry.forgive(now_s - due_s, now_s)
        steps: list[Step] = []
        for worker in self._registry.lost(now_s):
            silence = f"silent for {now_s - worker.last_message_s:.1f} s"
            steps.append(LogLine(None, f"{worker.role} {worker.uuid} is lost: {silence}"))
            if worker.lease:
                self._note_lost(worker)
            steps += self._assignments.end(worker, f"lost, {silence}", now_s, died=f"lost, {silence}")
            self._registry.remove(worker)
        for worker in self._registry.newly_stuck(now_s):
            text = f"{worker.role} {worker.uuid} is stuck: beats, but no progress while {worker.activity}"
            steps.append(self._log_of(worker, text, "warning"))
        for worker, limit_s in self._registry.overdue(now_s):
            took = f"{worker.activity} for {now_s - worker.progressed_s:.0f} s without progress"
            allowed = f"limits.{_LIMITS[worker.phase]} of its run allows {limit_s:g} s"
            steps += self._assignments.dismiss(worker, f"{took}, and {allowed}", now_s)
        for worker in self._registry.hopeless(now_s):
            why = f"stuck, no progress for {now_s - worker.progressed_s:.0f} s"
            steps += self._assignments.dismiss(worker, why, now_s)
        return steps

    def _note_lost(self, worker: Worker) -> None:
        self._lost.pop(worker.uuid, None)
        self._lost[worker.uuid] = worker.lease
        if len(self._lost) > LOST_KEPT:
            del self._lost[next(iter(self._lost))]

    def reject(self, worker: Worker, why: str, now_s: float) -> list[Step]:
        """Dismiss a worker that has sent an impossible message."""
        text = f"rejects message from {worker.role} {worker.uuid} on {worker.host}: {why}"
        line = self._log_of(worker, text, "error")
        return [line, *self._assignments.dismiss(worker, f"message rejected: {why}", now_s)]

    def _log_of(self, worker: Worker, text: str, level: Level = "info") -> LogLine:
        """Return a line for the log of the worker's experiment."""
        experiment = self._assignments.experiment_of(worker)
        return LogLine(None if experiment is None else experiment.identity.id, text, level)


def _refusal(message: Register, peer: bytes) -> Rejected | None:
    """Return the refusal of this registration; None if accepted."""
    if message.protocol != PROTOCOL_VERSION:
        return Rejected(
            "protocol",
            f"this coordinator speaks protocol {PROTOCOL_VERSION}, the worker {message.worker} "
            f"(Remuda {message.version}) speaks {message.protocol}; install the same version on both",
        )
    if not peer.startswith(f"{message.worker}:{message.incarnation}:".encode()):
        return Rejected("malformed", "the socket's identity is not that of the registered worker")
    return None


def _hang_up(former: bytes, peer: bytes) -> list[Step]:
    return [ForgetPeer(former)] if former != peer else []
