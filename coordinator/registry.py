"""Who is in the herd: registered workers, what they hold, and which of them are dead, stuck or well."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from heapq import heappop, heappush
from typing import TypeAlias

from remuda.training.snapshot import LeaseHolder
from remuda.wire.messages import Beat, Phase, Register, Role, WorkerState, WorkerStatus

SHORTEST_RATE_S = 0.5
"""Beats that come sooner after one another, after a break, say little about a rate."""


@dataclass(frozen=True)
class Limits:
    """How long a silence is forgiven."""

    beat_interval_s: float = 1.0
    """Of a herd that is not large."""
    lost_after_s: float = 10.0
    """No word at all for so long: the process is dead or cut off."""
    stuck_after_s: float = 60.0
    """Beats, but no progress for so long while it has work: an environment or a device hangs, and status says so."""
    hopeless_after_s: float = 120.0
    """Stuck for so long that its lease is taken away; the worker's own process then ends, with its stacks printed, and
    its nanny restarts it."""

    @classmethod
    def of(cls, settings: Iterable[str]) -> Limits:
        """Other limits than the usual ones, each as `lost_after_s=20`. Raises ValueError."""
        names = [each.name for each in fields(cls)]
        given: dict[str, float] = {}
        for setting in settings:
            name, _, number = setting.partition("=")
            if name not in names:
                raise ValueError(f"{setting!r} is none of the limits, which are {', '.join(names)}")
            given[name] = _seconds(setting, number)
        limits = cls(**given)
        if limits.lost_after_s < 2 * limits.beat_interval_s:
            raise ValueError(f"lost_after_s={limits.lost_after_s:g} is less than two beats: nobody would stay for long")
        if limits.hopeless_after_s < limits.stuck_after_s:
            raise ValueError(f"hopeless_after_s={limits.hopeless_after_s:g} is less than stuck_after_s")
        return limits


def _seconds(setting: str, number: str) -> float:
    try:
        seconds = float(number)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds < math.inf:
        raise ValueError(f"{setting!r} is no number of seconds, such as lost_after_s=20")
    return seconds


BEATS_PER_S = 200
"""Of the whole herd: a larger one beats less often, and a silence is forgiven for as much longer."""
LONGEST_BEAT_INTERVAL_S = 5.0


LongestWithoutProgress: TypeAlias = Mapping[Phase, float]
"""How long a worker may do so without any progress, for those phases that a run has limits of its own for; in any other
it is stuck and hopeless as Limits says."""


@dataclass
class Worker:
    """One registered worker in its present incarnation."""

    uuid: str
    incarnation: int
    role: Role
    host: str
    pid: int
    peer: bytes
    """Socket identity of this incarnation."""
    heard_s: float
    progress: int = 0
    progressed_s: float = 0.0
    activity: str = "registered"
    phase: Phase = "idle"
    longest_s: LongestWithoutProgress = field(default_factory=dict[Phase, float])
    """Of the run that it works for."""
    rss_bytes: int = 0
    cpu_s: float = 0.0
    """Processor time of its process so far, of all threads."""
    cpu_cores: float = 0.0
    """Processor time per second, between the newest two beats that said so."""
    cpu_heard_s: float = 0.0
    cpus: int = 0
    """Cores that it may use; 0 where its journal alone is known of it."""
    memory_bytes: int = 0
    """Of its machine."""
    lease: int = 0
    """0: in the herd, free to be drawn."""
    stuck: bool = False
    look_s: float = math.inf
    """When the registry looks at it next."""

    def is_process(self, message: Register) -> bool:
        """Whether the one that registers is this very process, over another connection."""
        return (self.incarnation, self.host, self.pid) == (message.incarnation, message.host, message.pid)

    @property
    def holder(self) -> LeaseHolder:
        """As it is remembered with the lease that it holds."""
        return LeaseHolder(self.lease, self.uuid, self.incarnation, self.role, self.host, self.pid)

    @property
    def state(self) -> WorkerState:
        """How it is. A lost worker is no longer in the registry."""
        if self.stuck:
            return "stuck"
        return "busy" if self.lease else "idle"

    def status(
        self, now_s: float, *, experiment: str | None = None, draining: bool = False, work_share: float | None = None
    ) -> WorkerStatus:
        """As `remuda status` shows it, with what its experiment knows of it."""
        return WorkerStatus(
            uuid=self.uuid,
            incarnation=self.incarnation,
            role=self.role,
            host=self.host,
            pid=self.pid,
            state="draining" if draining and self.state == "busy" else self.state,
            experiment=experiment,
            beat_age_s=now_s - self.heard_s,
            activity=self.activity,
            rss_bytes=self.rss_bytes,
            cpu_cores=self.cpu_cores,
            work_share=work_share,
            cpus=self.cpus,
            memory_bytes=self.memory_bytes,
        )


@dataclass(frozen=True)
class Admission:
    """What became of a registration."""

    worker: Worker | None
    superseded: Worker | None = None
    """The same worker's earlier incarnation, which must be told to go."""
    refusal: str | None = None
    back: bool = False
    """It was known already and has made a new connection."""
    former_peer: bytes = b""
    """Of the connection that it had before."""


class Registry:
    """Workers by UUID. Decides nothing about work; knows only who is there and in which state."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._workers: dict[str, Worker] = {}
        self._speakers: dict[bytes, Worker] = {}
        """Workers by the connection that they speak over."""
        self._holders: dict[int, Worker] = {}
        """Workers by the lease that they hold."""
        self._free: dict[Role, dict[str, None]] = {"learner": {}, "collector": {}, "evaluator": {}}
        """Workers without a lease, longest free first."""
        self._counts: Counter[Role] = Counter()
        self._looks: list[_Look] = []
        """A heap: when to look at each worker, at the earliest moment at which it can be lost, stuck or hopeless."""
        self._suspects: dict[str, Worker] = {}
        """Those for whom that moment has come, and that were not heard of since."""

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    def find(self, uuid: str) -> Worker | None:
        """The worker in its present incarnation, or None."""
        return self._workers.get(uuid)

    def count(self, role: Role) -> int:
        """How many workers of this role there are."""
        return self._counts[role]

    def free(self, role: Role) -> Collection[str]:
        """Those of this role that hold no lease, the longest free first; as they are now and later."""
        return self._free[role].keys()

    def at(self, peer: bytes) -> Worker | None:
        """The worker that speaks over this connection."""
        return self._speakers.get(peer)

    def has(self, peer: bytes) -> bool:
        """Whether a worker of the herd speaks over this connection."""
        return peer in self._speakers

    def holder(self, lease: int) -> Worker | None:
        """The worker that holds this lease; None when it is over."""
        return self._holders.get(lease)

    def give(self, worker: Worker, lease: int, longest_s: LongestWithoutProgress, now_s: float) -> None:
        """A free worker holds this lease from now on."""
        worker.lease, worker.longest_s, worker.progressed_s = lease, longest_s, now_s
        self._note(worker)
        self._plan_look(worker)

    def take_back(self, worker: Worker) -> None:
        """It holds no lease any more."""
        self._holders.pop(worker.lease, None)
        worker.lease, worker.stuck = 0, False
        if self._workers.get(worker.uuid) is worker:
            self._note(worker)

    def _put(self, worker: Worker) -> None:
        former = self._workers.get(worker.uuid)
        if former is not None:
            self.remove(former)
        self._workers[worker.uuid] = worker
        self._speaks_over(worker, worker.peer)
        self._plan_look(worker)
        self._counts[worker.role] += 1
        self._note(worker)

    def _speaks_over(self, worker: Worker, peer: bytes) -> None:
        """Empty: it has not been heard of."""
        self._speakers.pop(worker.peer, None)
        worker.peer = peer
        if peer:
            self._speakers[peer] = worker

    def _note(self, worker: Worker) -> None:
        """Whether it holds a lease or is free has changed."""
        free = self._free[worker.role]
        if worker.lease:
            free.pop(worker.uuid, None)
            self._holders[worker.lease] = worker
        else:
            free[worker.uuid] = None

    @property
    def beat_interval_s(self) -> float:
        """How often each worker is to beat."""
        shared_s = min(len(self) / BEATS_PER_S, LONGEST_BEAT_INTERVAL_S)
        return max(shared_s, self._limits.beat_interval_s)

    @property
    def _lost_after_s(self) -> float:
        return self._limits.lost_after_s + self.beat_interval_s - self._limits.beat_interval_s

    def admit(self, message: Register, peer: bytes, now_s: float) -> Admission:
        """Take a worker in; a higher incarnation replaces the one before it, and of two processes that claim the
        same incarnation the first one stays."""
        known = self._workers.get(message.worker)
        if known is not None and known.is_process(message):
            former_peer, known.heard_s = known.peer, now_s
            self._speaks_over(known, peer)
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
            heard_s=now_s,
            progressed_s=now_s,
            cpus=message.cpus,
            memory_bytes=message.memory_bytes,
        )
        self._put(worker)
        return Admission(worker=worker, superseded=known)

    def expect(self, holder: LeaseHolder, longest_s: LongestWithoutProgress, now_s: float) -> None:
        """A worker that held a lease when the coordinator's process ended: it has the usual time to be heard of. Where
        two journals name it, it had gone from one run to the other, and the newer lease holds."""
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
                heard_s=now_s,
                progressed_s=now_s,
                activity="not heard of since the coordinator was started again",
                lease=holder.lease,
                longest_s=longest_s,
            )
        )

    def remove(self, worker: Worker) -> None:
        """Forget a worker that left or was lost."""
        if self._workers.get(worker.uuid) is worker:
            del self._workers[worker.uuid]
            self._speakers.pop(worker.peer, None)
            self._suspects.pop(worker.uuid, None)
            self._counts[worker.role] -= 1
            self._free[worker.role].pop(worker.uuid, None)
            self._holders.pop(worker.lease, None)

    def beat(self, worker: Worker, message: Beat, now_s: float) -> bool:
        """Note a beat. True when the worker had been stuck and moves again."""
        worker.activity = message.activity
        worker.rss_bytes = message.rss_bytes
        if now_s - worker.cpu_heard_s >= SHORTEST_RATE_S:
            if worker.cpu_heard_s:
                worker.cpu_cores = max(message.cpu_s - worker.cpu_s, 0.0) / (now_s - worker.cpu_heard_s)
            worker.cpu_s, worker.cpu_heard_s = message.cpu_s, now_s
        moved = (message.progress, message.phase) != (worker.progress, worker.phase)
        if moved or not worker.lease or message.phase == "waiting":
            worker.progressed_s = now_s
        worker.progress, worker.phase = message.progress, message.phase
        recovered = worker.stuck and moved
        if recovered:
            worker.stuck = False
        self._plan_look(worker)
        return recovered

    def forgive(self, silence_s: float, now_s: float) -> None:
        """So much of everybody's silence was not theirs: nobody listened."""
        for worker in self:
            worker.heard_s = min(worker.heard_s + silence_s, now_s)
            worker.progressed_s = min(worker.progressed_s + silence_s, now_s)

    def lost(self, now_s: float) -> list[Worker]:
        """Workers that have been silent for too long."""
        limit_s = self._lost_after_s
        return [worker for worker in self._suspected(now_s) if now_s - worker.heard_s > limit_s]

    def hopeless(self, now_s: float) -> list[Worker]:
        """Workers that have been stuck for too long."""
        limit_s = self._limits.hopeless_after_s
        return [worker for worker in self._suspected(now_s) if worker.stuck and now_s - worker.progressed_s > limit_s]

    def overdue(self, now_s: float) -> list[tuple[Worker, float]]:
        """Workers that take longer for what they do than their run allows, each with that limit."""
        suspected = ((worker, worker.longest_s.get(worker.phase)) for worker in self._suspected(now_s) if worker.lease)
        return [(worker, limit_s) for worker, limit_s in suspected if limit_s and now_s - worker.progressed_s > limit_s]

    def newly_stuck(self, now_s: float) -> list[Worker]:
        """Workers that still beat but have stopped moving; each is named once, until it moves again."""
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
        """Those to look at now; of the others nothing can be said that was not said before."""
        looks = self._looks
        while looks and looks[0].at_s <= now_s:
            look = heappop(looks)
            worker = look.worker
            if self._workers.get(worker.uuid) is worker and look.at_s == worker.look_s:
                self._suspects[worker.uuid] = worker
        for worker in [*self._suspects.values()]:
            worker.look_s = math.inf
            if self._look_s(worker) > now_s:
                del self._suspects[worker.uuid]
                self._plan_look(worker)
        return [*self._suspects.values()]

    def _plan_look(self, worker: Worker) -> None:
        """It has a lease now, or does something else: it may have to be looked at earlier than was planned."""
        look_s = self._look_s(worker)
        if look_s < worker.look_s:
            worker.look_s = look_s
            heappush(self._looks, _Look(look_s, worker))

    def _look_s(self, worker: Worker) -> float:
        """Before then it is neither lost, nor newly stuck, hopeless or overdue, if it goes on with what it does."""
        lost_s = worker.heard_s + self._lost_after_s
        if not worker.lease:
            return lost_s
        limit_s = self._limits.hopeless_after_s if worker.stuck else self._limits.stuck_after_s
        limit_s = worker.longest_s.get(worker.phase, limit_s)
        return min(lost_s, worker.progressed_s + limit_s)


@dataclass(frozen=True, order=True)
class _Look:
    at_s: float
    worker: Worker = field(compare=False)
