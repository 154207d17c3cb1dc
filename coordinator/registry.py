"""Workers of the herd: beats, leases, and detection of dead and stuck workers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from remuda.coordinator.settings import BEATS_PER_S, LONGEST_BEAT_INTERVAL_S, Limits, LongestWithoutProgress
from remuda.training.snapshot import LeaseHolder
from remuda.wire.messages import ROLES, Beat, Phase, Register, Role, WorkerState, WorkerStatus

SHORTEST_RATE_S = 0.5
"""Beats in faster succession, after a break, say little about a rate."""


@dataclass
class Worker:
    """A registered worker in the present incarnation."""

    uuid: str
    incarnation: int
    role: Role
    host: str
    pid: int
    peer: bytes
    """Socket identity of this incarnation."""
    last_message_s: float
    progress: int = 0
    progressed_s: float = 0.0
    activity: str = "registered"
    phase: Phase = "idle"
    longest_s: LongestWithoutProgress = field(default_factory=dict[Phase, float])
    """Time limits of the run."""
    rss_bytes: int = 0
    cpu_s: float = 0.0
    """Processor time of the process so far, of all threads."""
    cpu_cores: float = 0.0
    """Processor time per second between the newest two beats."""
    cpu_measured_s: float = 0.0
    cpus: int = 0
    """Usable cores; 0 if only the journal knows the worker."""
    memory_bytes: int = 0
    """Memory of its machine."""
    lease: int = 0
    """0: in the herd, free to be drawn."""
    stuck: bool = False
    check_s: float = math.inf
    """Time of the next check."""

    def is_process(self, message: Register) -> bool:
        """True if the registering process is this one, over another connection."""
        return (self.incarnation, self.host, self.pid) == (message.incarnation, message.host, message.pid)

    @property
    def holder(self) -> LeaseHolder:
        """Journal row of the worker, with the lease."""
        return LeaseHolder(self.lease, self.uuid, self.incarnation, self.role, self.host, self.pid)

    @property
    def state(self) -> WorkerState:
        """Present state. A lost worker is no longer in the registry."""
        if self.stuck:
            return "stuck"
        return "busy" if self.lease else "idle"

    def status(
        self, now_s: float, *, experiment: str | None = None, draining: bool = False, work_share: float | None = None
    ) -> WorkerStatus:
        """Return the line in `remuda status`, with data of the experiment."""
        return WorkerStatus(
            uuid=self.uuid,
            incarnation=self.incarnation,
            role=self.role,
            host=self.host,
            pid=self.pid,
            state="draining" if draining and self.state == "busy" else self.state,
            experiment=experiment,
            beat_age_s=now_s - self.last_message_s,
            activity=self.activity,
            rss_bytes=self.rss_bytes,
            cpu_cores=self.cpu_cores,
            work_share=work_share,
            cpus=self.cpus,
            memory_bytes=self.memory_bytes,
        )


@dataclass(frozen=True)
class Admission:
    """The result of a registration."""

    worker: Worker | None
    superseded: Worker | None = None
    """The earlier incarnation of the same worker, which must leave."""
    refusal: str | None = None
    back: bool = False
    """The worker was known before and has a new connection."""
    former_peer: bytes = b""
    """Its previous connection."""


class Registry:
    """Workers by UUID. Knows their states, and decides nothing about work."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._workers: dict[str, Worker] = {}
        self.by_peer: dict[bytes, Worker] = {}
        """Workers by connection."""
        self.holders: dict[int, Worker] = {}
        """Workers by lease."""
        self._free: dict[Role, dict[str, None]] = {role: {} for role in ROLES}
        """Workers without a lease, longest free first."""
        self._counts: Counter[Role] = Counter()
        self._checks: list[_Check] = []
        """A heap with the time of the next check per worker: the earliest moment to be lost, stuck or hopeless."""
        self._suspects: dict[str, Worker] = {}
        """Workers due for a check, and silent since."""

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    def find(self, uuid: str) -> Worker | None:
        """Return the worker in the present incarnation, or None."""
        return self._workers.get(uuid)

    def count(self, role: Role) -> int:
        """Return the number of workers of this role."""
        return self._counts[role]

    def free(self, role: Role) -> Collection[str]:
        """Workers of this role without a lease, the longest free first. The sequence follows later changes."""
        return self._free[role].keys()

    def has(self, peer: bytes) -> bool:
        """True if this is the connection of a worker of the herd."""
        return peer in self.by_peer

    def give(self, worker: Worker, lease: int, longest_s: LongestWithoutProgress, now_s: float) -> None:
        """Give this lease to a free worker."""
        worker.lease, worker.longest_s, worker.progressed_s = lease, longest_s, now_s
        self._note(worker)
        self._plan_check(worker)

    def take_back(self, worker: Worker) -> None:
        """Take the lease away from a worker."""
        self.holders.pop(worker.lease, None)
        worker.lease, worker.stuck = 0, False
        if self._workers.get(worker.uuid) is worker:
            self._note(worker)

    def _put(self, worker: Worker) -> None:
        former = self._workers.get(worker.uuid)
        if former is not None:
            self.remove(former)
        self._workers[worker.uuid] = worker
        self._connect(worker, worker.peer)
        self._plan_check(worker)
        self._counts[worker.role] += 1
        self._note(worker)

    def _connect(self, worker: Worker, peer: bytes) -> None:
        """Assign a connection to a worker; an empty one if the worker has sent nothing yet."""
        self.by_peer.pop(worker.peer, None)
        worker.peer = peer
        if peer:
            self.by_peer[peer] = worker

    def _note(self, worker: Worker) -> None:
        """Update the index of holders and free workers after a change of lease."""
        free = self._free[worker.role]
        if worker.lease:
            free.pop(worker.uuid, None)
            self.holders[worker.lease] = worker
        else:
            free[worker.uuid] = None

    @property
    def beat_interval_s(self) -> float:
        """Interval between two beats of a worker."""
        shared_s = min(len(self) / BEATS_PER_S, LONGEST_BEAT_INTERVAL_S)
        return max(shared_s, self._limits.beat_interval_s)

    @property
    def _lost_after_s(self) -> float:
        return self._limits.lost_after_s + self.beat_interval_s - self._limits.beat_interval_s

    def admit(self, message: Register, peer: bytes, now_s: float) -> Admission:
        """Register a worker. A higher incarnation replaces an earlier one. If two processes claim the same incarnation,
        the first stays."""
        known = self._workers.get(message.worker)
        if known is not None and known.is_process(message):
            former_peer, known.last_message_s = known.peer, now_s
            self._connect(known, peer)
            known.cpus, known.memory_bytes = message.cpus, message.memory_bytes
            return Admission(worker=known, back=True, former_peer=former_peer)
        if known is not None and message.incarnation <= known.incarnation:
            return Admission(
                worker=None,
                refusal=f"worker {message.worker} is already here as incarnation {known.incarnation} "
                f"(pid {known.pid} on {known.host}); incarnation {message.incarnation} is not newer",
            )
        worker = Worker(
            uuid=message.worker,
            incarnation=message.incarnation,
            role=message.role,
            host=message.host,
            pid=message.pid,
            peer=peer,
            last_message_s=now_s,
            progressed_s=now_s,
            cpus=message.cpus,
            memory_bytes=message.memory_bytes,
        )
        self._put(worker)
        return Admission(worker=worker, superseded=known)

    def expect(self, holder: LeaseHolder, longest_s: LongestWithoutProgress, now_s: float) -> None:
        """Expect a worker with a lease at the end of the previous coordinator's process, for the usual time. Two
        journals name a worker after a move between runs: the newer lease counts."""
        known = self._workers.get(holder.worker)
        if known is not None and known.lease > holder.lease:
            return
        self._put(
            Worker(
                uuid=holder.worker,
                incarnation=holder.incarnation,
                role=holder.role,
                host=holder.host,
                pid=holder.pid,
                peer=b"",
                last_message_s=now_s,
                progressed_s=now_s,
                activity="nothing received since the coordinator was started again",
                lease=holder.lease,
                longest_s=longest_s,
            )
        )

    def remove(self, worker: Worker) -> None:
        """Forget a worker that left or was lost."""
        if self._workers.get(worker.uuid) is worker:
            del self._workers[worker.uuid]
            self.by_peer.pop(worker.peer, None)
            self._suspects.pop(worker.uuid, None)
            self._counts[worker.role] -= 1
            self._free[worker.role].pop(worker.uuid, None)
            self.holders.pop(worker.lease, None)

    def beat(self, worker: Worker, message: Beat, now_s: float, *, is_held_up: bool = False) -> bool:
        """Record a beat. A worker of a run that `is_held_up` waits for a disk, whatever the report. Returns True if the
        worker had been stuck and makes progress again."""
        worker.activity = message.activity
        worker.rss_bytes = message.rss_bytes
        if now_s - worker.cpu_measured_s >= SHORTEST_RATE_S:
            if worker.cpu_measured_s:
                worker.cpu_cores = max(message.cpu_s - worker.cpu_s, 0.0) / (now_s - worker.cpu_measured_s)
            worker.cpu_s, worker.cpu_measured_s = message.cpu_s, now_s
        moved = (message.progress, message.phase) != (worker.progress, worker.phase)
        if moved or is_held_up or not worker.lease or message.phase == "waiting":
            worker.progressed_s = now_s
        worker.progress, worker.phase = message.progress, message.phase
        recovered = worker.stuck and moved
        if recovered:
            worker.stuck = False
        self._plan_check(worker)
        return recovered

    def forgive(self, silence_s: float, now_s: float) -> None:
        """Forgive every worker this much silence, in which this process stood still."""
        for worker in self:
            worker.last_message_s = min(worker.last_message_s + silence_s, now_s)
            worker.progressed_s = min(worker.progressed_s + silence_s, now_s)

    def lost(self, now_s: float) -> list[Worker]:
        """Return the workers that have been silent for too long."""
        limit_s = self._lost_after_s
        return [worker for worker in self._suspected(now_s) if now_s - worker.last_message_s > limit_s]

    def hopeless(self, now_s: float) -> list[Worker]:
        """Return the workers that have been stuck for too long."""
        limit_s = self._limits.hopeless_after_s
        return [worker for worker in self._suspected(now_s) if worker.stuck and now_s - worker.progressed_s > limit_s]

    def overdue(self, now_s: float) -> list[tuple[Worker, float]]:
        """Return the workers over the run's time limit for an activity, with this limit."""
        suspected = ((worker, worker.longest_s.get(worker.phase)) for worker in self._suspected(now_s) if worker.lease)
        return [(worker, limit_s) for worker, limit_s in suspected if limit_s and now_s - worker.progressed_s > limit_s]

    def newly_stuck(self, now_s: float) -> list[Worker]:
        """Return the workers with beats but without progress; a worker is named once, until the next progress."""
        found = [
            worker
            for worker in self._suspected(now_s)
            if worker.lease
            and not worker.stuck
            and worker.phase not in worker.longest_s
            and now_s - worker.progressed_s > self._limits.stuck_after_s
        ]
        for worker in found:
            worker.stuck = True
        return found

    def _suspected(self, now_s: float) -> list[Worker]:
        """Return the workers to check now. Nothing has changed for the others."""
        looks = self._checks
        while looks and looks[0].at_s <= now_s:
            look = heappop(looks)
            worker = look.worker
            if self._workers.get(worker.uuid) is worker and look.at_s == worker.check_s:
                self._suspects[worker.uuid] = worker
        for worker in [*self._suspects.values()]:
            worker.check_s = math.inf
            if self._check_s(worker) > now_s:
                del self._suspects[worker.uuid]
                self._plan_check(worker)
        return [*self._suspects.values()]

    def _plan_check(self, worker: Worker) -> None:
        """Plan an earlier check for a worker with a new lease or activity, if needed."""
        check_s = self._check_s(worker)
        if check_s < worker.check_s:
            worker.check_s = check_s
            heappush(self._checks, _Check(check_s, worker))

    def _check_s(self, worker: Worker) -> float:
        """Return the time until which the worker cannot become lost, stuck, hopeless or overdue without a change of
        activity."""
        lost_s = worker.last_message_s + self._lost_after_s
        if not worker.lease:
            return lost_s
        limit_s = self._limits.hopeless_after_s if worker.stuck else self._limits.stuck_after_s
        limit_s = worker.longest_s.get(worker.phase, limit_s)
        return min(lost_s, worker.progressed_s + limit_s)


@dataclass(frozen=True, order=True)
class _Check:
    at_s: float
    worker: Worker = field(compare=False)
