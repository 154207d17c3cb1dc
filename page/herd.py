"""Views of a herd: coordinator, hosts, workers, queue, failures, and counts of chunks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from remuda.logbook.series import Event
from remuda.wire.messages import (
    OVER,
    ROLES,
    CoordinatorStatus,
    ExperimentState,
    ExperimentStatus,
    LedgerCounts,
    Role,
    Status,
    WorkerState,
    WorkerStatus,
)

Wait = Literal["credit", "batches", "policy", "disk", "workers", "other"]
OF_ACTIVITY: dict[str, Wait] = {
    "waiting for credit": "credit",
    "waiting for batches": "batches",
    "waiting for an evaluation": "batches",
    "waiting for chunks": "batches",
}
"""Wait by activity of a worker. Further activities with `waiting` in front are `other`."""
OF_USAGE: dict[str, Wait] = {
    "wait_credit": "credit",
    "wait_data": "batches",
    "wait_policy": "policy",
    "wait_other": "other",
}
"""Wait by name of its share in the time series. The other two waits follow from events."""
_WORDS = {
    "work": ("works", ""),
    "env": ("steps environments", ""),
    "wait_credit": ("waits for credit", "the learner is slower, or a new policy has to come first"),
    "wait_batches": ("waits for batches", "its collectors are slower; more of them would help"),
    "wait_policy": ("waits for a policy", "one is loaded or published"),
    "wait_disk": ("waits for the disk", "the disk of the run takes no writes"),
    "wait_workers": ("waits for workers", "the herd has none for it"),
    "wait_other": ("waits for something else", "acknowledgements, or the end"),
}
_WORDS_OF = {
    "evaluator": {"wait_batches": ("waits for an evaluation", "no checkpoint is due")},
    "reanalyzer": {"wait_batches": ("waits for rows", "there is nothing to compute again")},
    "collector": {
        "wait_policy": ("waits for a policy or for actions", "a policy is loaded, or an inference worker computes")
    },
    "inference": {"wait_batches": ("waits for collectors", "they step environments, or wait for credit")},
    "coordinator": {"wait_other": ("waits for messages", "it has nothing to do")},
}
_PART = re.compile(rf"(\d+) ({'|'.join(ROLES)})s? \((\d+) free([^)]*)\)")
_BY_NAME: dict[str, Role] = {role: role for role in ROLES}
MOST_LOST = 2
"""Most unannounced chunks of a collector: a chunk in progress, and a chunk in transit."""
MOST_FAILURES = 200
FAILURES = frozenset({"worker_died", "worker_failed", "held_up"})
"""Kinds of events that are failures."""


def waits_for(activity: str) -> Wait | None:
    """Return the wait of a worker with this activity; None without a wait."""
    if activity in OF_ACTIVITY:
        return OF_ACTIVITY[activity]
    return "other" if activity.startswith("waiting") else None


def words(role: str) -> dict[str, tuple[str, str]]:
    """Return name and reason of each kind of a role's time."""
    return {**_WORDS, **_WORDS_OF.get(role, {})}


class MissingWorkers(Struct, frozen=True):
    """Workers of a role that an experiment needs to begin."""

    role: Role
    missing: int
    """Needed workers beyond the free workers."""
    needs: int
    """Least number of needed workers."""
    free: int
    note: str
    """Remark, for instance about workers reserved for another experiment; may be empty."""


class Holder(Struct, frozen=True):
    """An experiment with workers of a role that another experiment needs."""

    experiment: str
    run: str | None
    name: str
    role: Role
    workers: int


class QueueEntry(Struct, frozen=True):
    """An unfinished experiment."""

    id: str
    run: str | None
    name: str
    state: ExperimentState
    priority: int | None
    place: int | None
    """Position among waiting experiments, from 1; None for running experiments."""
    wall_s: float
    why: str | None
    waits_for: list[MissingWorkers]
    held_by: list[Holder]


class Queue(Struct, frozen=True):
    """The whole view."""

    experiments: list[QueueEntry]
    free: dict[Role, int]


def queue(status: Status, runs: Mapping[str, str]) -> Queue:
    """Return the queue of a status, with run ids by experiment id. Order: higher priority first, then running
    experiments, then order of submission."""
    open_ = [each for each in status.experiments if each.state not in OVER]
    order = sorted(open_, key=lambda each: (-each.priority, each.state == "queued"))
    held: Counter[tuple[str, Role]] = Counter(
        (worker.experiment, worker.role) for worker in status.workers if worker.experiment is not None
    )
    free: Counter[Role] = Counter(worker.role for worker in status.workers if worker.state == "idle")
    places = {each.id: place for place, each in enumerate((e for e in order if e.state == "queued"), start=1)}
    names = {each.id: each.name for each in open_}
    return Queue(
        [_queued(each, places.get(each.id), runs, names, held) for each in order], {role: free[role] for role in ROLES}
    )


def lacks(why: str | None) -> list[MissingWorkers]:
    """The parts of the coordinator's sentence `waits for 1 learner (0 free) and 2 collectors (1 free)`."""
    if why is None or not why.startswith("waits for "):
        return []
    found: list[MissingWorkers] = []
    for count, name, free, note in _PART.findall(why):
        role = _BY_NAME[name]
        needs, there = int(count), int(free)
        found.append(MissingWorkers(role, max(needs - there, 0), needs, there, note.removeprefix(", ")))
    return found


def _queued(
    status: ExperimentStatus,
    place: int | None,
    runs: Mapping[str, str],
    names: Mapping[str, str],
    held: Mapping[tuple[str, Role], int],
) -> QueueEntry:
    lacking = lacks(status.waiting_for)
    roles = {lack.role for lack in lacking}
    holders = [
        Holder(experiment, runs.get(experiment), names.get(experiment, experiment), role, count)
        for (experiment, role), count in held.items()
        if role in roles and experiment != status.id
    ]
    return QueueEntry(
        id=status.id,
        run=runs.get(status.id),
        name=status.name,
        state=status.state,
        priority=status.priority,
        place=place,
        wall_s=status.wall_s,
        why=status.waiting_for,
        waits_for=lacking,
        held_by=holders,
    )


class LedgerView(Struct, frozen=True, kw_only=True):
    """Counts of a run. See LedgerCounts."""

    accepted_chunks: int
    repeated_chunks: int
    lost_collectors: int
    lost_chunks_most: int
    """Upper bound of lost chunks: refused chunks, and chunks of collectors that ended without sending."""


def ledger_view(counts: LedgerCounts) -> LedgerView:
    """Return the view of counts."""
    return LedgerView(
        accepted_chunks=counts.accepted,
        repeated_chunks=counts.repeated,
        lost_collectors=counts.lost_collectors,
        lost_chunks_most=counts.refused + MOST_LOST * counts.lost_collectors,
    )


class WorkerView(WorkerStatus, frozen=True, kw_only=True):
    """A worker."""

    run: str | None
    """Run id of a run below the runs folder."""
    waits_for: Wait | None
    restarts: int
    """Number of restarts."""


class HostView(Struct, frozen=True):
    """All workers of one host."""

    host: str
    workers: int
    cpus: int
    """Cores available to the workers."""
    cpu_cores: float
    """Processor seconds per second of the workers."""
    memory_bytes: int
    rss_bytes: int
    roles: dict[Role, int]
    states: dict[WorkerState, int]
    restarts: int


class Failure(Struct, frozen=True):
    """A failure in the time series of a run."""

    time_s: float
    run: str
    event: str
    role: str | None
    worker: str | None
    text: str


class Herd(Struct, frozen=True):
    """The whole view."""

    coordinator: CoordinatorStatus
    hosts: list[HostView]
    workers: list[WorkerView]
    failures: list[Failure]


def herd(status: Status, runs: Mapping[str, str], failures: Sequence[Failure] = ()) -> Herd:
    """Return the view of a status, with run ids by experiment id."""
    workers = [worker_view(worker, runs) for worker in status.workers]
    return Herd(status.coordinator, hosts(workers), workers, list(failures))


def worker_view(worker: WorkerStatus, runs: Mapping[str, str]) -> WorkerView:
    """Return the view of a worker."""
    works = worker.state in ("busy", "stuck", "draining")
    return WorkerView(
        **asdict(worker),
        run=None if worker.experiment is None else runs.get(worker.experiment),
        waits_for=waits_for(worker.activity) if works else None,
        restarts=max(worker.incarnation - 1, 0),
    )


def hosts(workers: Iterable[WorkerView]) -> list[HostView]:
    """Return the hosts in order of names."""
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
    """Return the failures among the events of a run."""
    return [
        Failure(event.time_s, run, event.event, event.role, event.worker, event.text)
        for event in events
        if event.event in FAILURES
    ]


def newest(failures: Iterable[Failure]) -> list[Failure]:
    """The newest first, at most MOST_FAILURES."""
    return sorted(failures, key=lambda failure: failure.time_s, reverse=True)[:MOST_FAILURES]
