"""The queue: which experiments are not over, what each waits for, and who has the workers that it lacks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from remuda.wire.messages import OVER, ROLES, ExperimentState, ExperimentStatus, Role, Status

_PART = re.compile(rf"(\d+) ({'|'.join(ROLES)})s? \((\d+) free([^)]*)\)")

_BY_NAME: dict[str, Role] = {role: role for role in ROLES}


class Lack(Struct, frozen=True):
    """Workers of one role that an experiment needs to begin."""

    role: Role
    missing: int
    """How many it needs that are not free."""
    needs: int
    """How many it needs at least."""
    free: int
    note: str
    """More about them, such as that they are kept for another experiment; empty if there is nothing to say."""


class Holder(Struct, frozen=True):
    """An experiment that has workers of a role that another one lacks."""

    experiment: str
    run: str | None
    name: str
    role: Role
    workers: int


class Queued(Struct, frozen=True):
    """One experiment that is not over."""

    id: str
    run: str | None
    name: str
    state: ExperimentState
    priority: int | None
    place: int | None
    """Its place among those that wait for workers, from 1; None for others."""
    wall_s: float
    why: str | None
    waits_for: list[Lack]
    held_by: list[Holder]


class Queue(Struct, frozen=True):
    """The whole view."""

    experiments: list[Queued]
    free: dict[Role, int]


def queue(status: Status, runs: Mapping[str, str]) -> Queue:
    """The view of a status; `runs` are the ids of runs by that of their experiment. Those with the higher priority come
    first, then those that have begun, then in order of submission."""
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


def lacks(why: str | None) -> list[Lack]:
    """The parts of the coordinator's sentence `waits for 1 learner (0 free) and 2 collectors (1 free)`."""
    if why is None or not why.startswith("waits for "):
        return []
    found: list[Lack] = []
    for count, name, free, note in _PART.findall(why):
        role = _BY_NAME[name]
        needs, there = int(count), int(free)
        found.append(Lack(role, max(needs - there, 0), needs, there, note.removeprefix(", ")))
    return found


def _queued(
    status: ExperimentStatus,
    place: int | None,
    runs: Mapping[str, str],
    names: Mapping[str, str],
    held: Mapping[tuple[str, Role], int],
) -> Queued:
    lacking = lacks(status.waiting_for)
    return Queued(
        id=status.id,
        run=runs.get(status.id),
        name=status.name,
        state=status.state,
        priority=status.priority,
        place=place,
        wall_s=status.wall_s,
        why=status.waiting_for,
        waits_for=lacking,
        held_by=_holders([lack.role for lack in lacking], status.id, runs, names, held),
    )


def _holders(
    roles: Sequence[Role],
    waiting: str,
    runs: Mapping[str, str],
    names: Mapping[str, str],
    held: Mapping[tuple[str, Role], int],
) -> list[Holder]:
    return [
        Holder(experiment, runs.get(experiment), names.get(experiment, experiment), role, count)
        for (experiment, role), count in held.items()
        if role in roles and experiment != waiting
    ]
