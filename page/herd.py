"""The view of a herd: its coordinator, its hosts, its workers, and who failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from remuda.logbook.series import Event
from remuda.page.waits import Wait, waits_for
from remuda.wire.messages import CoordinatorStatus, Role, Status, WorkerState, WorkerStatus

MOST_FAILURES = 200
FAILURES = frozenset({"worker_died", "worker_failed", "held_up"})
"""Kinds of events that are failures."""


class CoordinatorView(Struct, frozen=True):
    """The coordinator's own process."""

    id: str
    address: str
    pid: int
    uptime_s: float
    protocol: int
    longest_turn_s: float
    descriptors: int
    descriptor_limit: int
    refusals: dict[str, int]


class WorkerView(Struct, frozen=True, kw_only=True):
    """One worker. See WorkerStatus."""

    uuid: str
    incarnation: int
    role: Role
    host: str
    pid: int
    state: WorkerState
    experiment: str | None
    run: str | None
    """The id of its run, if that is below the runs folder."""
    activity: str
    waits_for: Wait | None
    beat_age_s: float
    rss_bytes: int
    cpu_cores: float
    work_share: float | None
    cpus: int
    memory_bytes: int
    restarts: int
    """How often it was started again."""


class HostView(Struct, frozen=True):
    """All workers of one host."""

    host: str
    workers: int
    cpus: int
    """Cores that its workers may use."""
    cpu_cores: float
    """Processor time that they take per second."""
    memory_bytes: int
    rss_bytes: int
    roles: dict[Role, int]
    states: dict[WorkerState, int]
    restarts: int


class Failure(Struct, frozen=True):
    """Something of the time series of a run that went wrong."""

    time_s: float
    run: str
    event: str
    role: str | None
    worker: str | None
    text: str


class Herd(Struct, frozen=True):
    """The whole view."""

    coordinator: CoordinatorView
    hosts: list[HostView]
    workers: list[WorkerView]
    failures: list[Failure]


def herd(status: Status, runs: Mapping[str, str], failures: Sequence[Failure] = ()) -> Herd:
    """The view of a status; `runs` are the ids of runs by that of their experiment."""
    workers = [worker_view(worker, runs) for worker in status.workers]
    return Herd(coordinator_view(status.coordinator), hosts(workers), workers, list(failures))


def coordinator_view(status: CoordinatorStatus) -> CoordinatorView:
    """Of the coordinator alone."""
    load = status.load
    return CoordinatorView(
        id=status.id,
        address=status.address,
        pid=status.pid,
        uptime_s=status.uptime_s,
        protocol=status.protocol,
        longest_turn_s=load.longest_turn_s,
        descriptors=load.descriptors,
        descriptor_limit=load.descriptor_limit,
        refusals=asdict(status.refusals),
    )


def worker_view(worker: WorkerStatus, runs: Mapping[str, str]) -> WorkerView:
    """Of one worker."""
    works = worker.state in ("busy", "stuck", "draining")
    return WorkerView(
        **asdict(worker),
        run=None if worker.experiment is None else runs.get(worker.experiment),
        waits_for=waits_for(worker.activity) if works else None,
        restarts=max(worker.incarnation - 1, 0),
    )


def hosts(workers: Iterable[WorkerView]) -> list[HostView]:
    """One per host, in order of their names."""
    members: dict[str, list[WorkerView]] = {}
    for worker in workers:
        members.setdefault(worker.host, []).append(worker)
    return [_host(name, members[name]) for name in sorted(members)]


def _host(name: str, workers: Sequence[WorkerView]) -> HostView:
    return HostView(
        host=name,
        workers=len(workers),
        cpus=max(worker.cpus for worker in workers),
        cpu_cores=sum(worker.cpu_cores for worker in workers),
        memory_bytes=max(worker.memory_bytes for worker in workers),
        rss_bytes=sum(worker.rss_bytes for worker in workers),
        roles=dict(Counter(worker.role for worker in workers)),
        states=dict(Counter(worker.state for worker in workers)),
        restarts=sum(worker.restarts for worker in workers),
    )


def failures_of(run: str, events: Iterable[Event]) -> list[Failure]:
    """Those among the events of a run."""
    return [
        Failure(event.time_s, run, event.event, event.role, event.worker, event.text)
        for event in events
        if event.event in FAILURES
    ]


def newest(failures: Iterable[Failure]) -> list[Failure]:
    """The newest first, at most MOST_FAILURES."""
    return sorted(failures, key=lambda failure: failure.time_s, reverse=True)[:MOST_FAILURES]
