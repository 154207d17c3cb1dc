"""The herd: workers join, come back and leave, and are dropped when they are lost or stuck."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from remuda.coordinator.assignments import Assignments
from remuda.coordinator.effects import FindRoom, ForgetPeer, Release, Reply, SendToPeer, Step
from remuda.coordinator.experiment.team import Run
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
"""Time between two searches of the whole herd for workers that are lost or stuck."""
ROOM_AGAIN_S = 1.0
"""Time between two orders to look for room on the disk of a run that is not held up."""
LOST_KEPT = 1_000
"""Lost workers that are kept in mind, since they may come back in another incarnation."""
_LIMITS: Mapping[Phase, str] = {"preparing": "prepare_s", "saving": "save_s"}
"""The settings by which a run says how long its workers may take for these activities."""
_STATES: tuple[WorkerState, ...] = ("idle", "busy", "stuck", "draining")
"""Of a worker that is registered."""
AWAY_S = 3.0
"""A search that comes this much later than planned shows that this process stood still: it was stopped, or its disk
hung. Messages that were sent during that time have yet to be read."""


@dataclass(frozen=True)
class FilesOffer:
    """Where the runs folder is, by what a worker knows that it sees it, and where files travel by stream."""

    runs_dir: str = ""
    token: str = ""
    token_there: bool = False
    stream_port: int = 0
    grants: Grants | None = None
    """None: in tests without files."""

    def granted(self, assign: Assign, worker: Worker) -> Assign:
        """The same lease with the grant that its worker shows to the stream server, if it needs it."""
        if self.grants is None or worker.role == "learner":
            return assign
        grant = Grant(
            os.path.normpath(assign.run_dir), worker.role, worker.uuid, worker.incarnation, assign.policy_file
        )
        return replace(assign, grant=self.grants.seal(grant))


class Membership:
    """Workers come and go: one that comes gets work where a worker is needed, one that goes leaves no open lease."""

    def __init__(self, coordinator: str, registry: Registry, assignments: Assignments, files: FilesOffer) -> None:
        """`coordinator` is the id that workers get, `files` how they reach the files of runs."""
        self._coordinator = coordinator
        self._files = files
        self._registry = registry
        self._assignments = assignments
        self._look_due_s: float | None = None
        self._lost: dict[str, int] = {}
        """The lease that each lost worker (by UUID) had."""

    # --- they come ---

    def register(self, message: Register, peer: bytes, now_s: float) -> list[Step]:
        """A worker wants to join; or it is back over a new connection."""
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
        """The worker had lost its connection to this coordinator, or worked for the coordinator before. It keeps its
        lease if both sides agree that it has it; messages to it are sent again."""
        experiment = self._assignments.experiment_of(worker)
        if experiment is not None and worker.lease == message.lease:
            return [self._registered(message.lease, goes_on=True), *experiment.back(worker.lease, now_s)]
        ended = self._assignments.end(worker, "it does not hold its lease any more", now_s)
        return [self._registered(message.lease), *ended, *self._assignments.schedule(now_s)]

    def _explain(self, worker: Worker, exit: str) -> list[Step]:
        """A lost worker is back in its next incarnation, and its nanny knows how the one before ended."""
        experiment = self._assignments.find(self._lost.pop(worker.uuid, 0))
        if not isinstance(experiment, Run):
            return []
        experiment.explain_death(worker.uuid, exit)
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
        """A beat: the worker is alive, and says whether it makes progress."""
        steps: list[Step] = []
        if self._registry.beat(worker, message, now_s, is_held_up=self._assignments.is_held_up(worker)):
            steps.append(self._log_of(worker, f"{worker.role} {worker.uuid} moves again"))
        return [Reply(BeatHeard(self._registry.beat_interval_s)), *steps, *self._find_room(worker, message, now_s)]

    def _find_room(self, worker: Worker, message: Beat, now_s: float) -> list[Step]:
        """A worker that cannot write what it has holds up its run: others of the run could not either."""
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
        self._registry.take_back(worker)
        return self.dismiss(worker, "it did not let go when its experiment ended", now_s) if release.dismiss else []

    def status(self, now_s: float) -> list[WorkerStatus]:
        """All workers, as `remuda status` shows them."""
        return [self._status(worker, now_s) for worker in self._registry]

    def counts(self) -> dict[Role, dict[WorkerState, int]]:
        """How many workers of each role are in each state, zeros included; a lost worker is in none."""
        counts: dict[Role, dict[WorkerState, int]] = {role: dict.fromkeys(_STATES, 0) for role in ROLES}
        for worker in self._registry:
            draining = worker.state == "busy" and self._drains(worker)
            counts[worker.role]["draining" if draining else worker.state] += 1
        return counts

    def _drains(self, worker: Worker) -> bool:
        experiment = self._assignments.experiment_of(worker)
        return experiment is not None and experiment.drains(worker.lease)

    def _status(self, worker: Worker, now_s: float) -> WorkerStatus:
        experiment = self._assignments.experiment_of(worker)
        if experiment is None:
            return worker.status(now_s)
        draining, work_share = experiment.drains(worker.lease), experiment.work_share(worker.uuid)
        return worker.status(now_s, experiment=experiment.identity.id, draining=draining, work_share=work_share)

    # --- they go ---

    def goodbye(self, worker: Worker, reason: str, now_s: float) -> list[Step]:
        """The worker leaves by itself."""
        steps = self._assignments.end(worker, f"it left ({reason})", now_s, handed_in=True)
        self._registry.remove(worker)
        steps.append(LogLine(None, f"{worker.role} {worker.uuid} leaves the herd: {reason}"))
        return steps + self._assignments.schedule(now_s)

    def tick(self, now_s: float) -> list[Step]:
        """Called from time to time: find workers that are lost, stuck or too slow."""
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
            steps += self.dismiss(worker, f"{took}, and {allowed}", now_s)
        for worker in self._registry.hopeless(now_s):
            steps += self.dismiss(worker, f"stuck, no progress for {now_s - worker.progressed_s:.0f} s", now_s)
        return steps

    def _note_lost(self, worker: Worker) -> None:
        self._lost.pop(worker.uuid, None)
        self._lost[worker.uuid] = worker.lease
        if len(self._lost) > LOST_KEPT:
            del self._lost[next(iter(self._lost))]

    def reject(self, worker: Worker, why: str, now_s: float) -> list[Step]:
        """A worker has sent something that cannot be true: it gets no more work."""
        text = f"{worker.role} {worker.uuid} on {worker.host} is not believed: {why}"
        return [self._log_of(worker, text, "error"), *self.dismiss(worker, f"it is not believed: {why}", now_s)]

    def dismiss(self, worker: Worker, why: str, now_s: float) -> list[Step]:
        """Remove a worker from the herd. Its process ends, and its nanny starts it again."""
        steps = self._assignments.end(worker, why, now_s)
        self._registry.remove(worker)
        return [*steps, SendToPeer(worker.peer, Rejected("dismissed", why))]

    def _log_of(self, worker: Worker, text: str, level: Level = "info") -> LogLine:
        """A line for the log of the experiment that the worker works for."""
        experiment = self._assignments.experiment_of(worker)
        return LogLine(None if experiment is None else experiment.identity.id, text, level)


def _refusal(message: Register, peer: bytes) -> Rejected | None:
    """Why this registration is refused at once; None if it is not."""
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
