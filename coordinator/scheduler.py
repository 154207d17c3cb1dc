"""Which workers an experiment draws from the herd, and why one that waits is waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from remuda.wire.messages import Role

ROLES: tuple[Role, ...] = ("learner", "collector", "evaluator")


@dataclass(frozen=True)
class Demand:
    """What one experiment still needs, by role."""

    experiment: str
    priority: int
    submitted: int
    """Order of submission; the earlier goes first among equal priorities."""
    minimum: Mapping[Role, int]
    """Without these it does not start; zero for an experiment that runs already."""
    wanted: Mapping[Role, int]
    """It takes up to so many; at least `minimum`."""


@dataclass(frozen=True)
class Grant:
    """One worker goes to one experiment."""

    experiment: str
    role: Role
    worker: str


@dataclass(frozen=True)
class Plan:
    """What to assign now, and a sentence for each experiment that has to wait."""

    grants: tuple[Grant, ...]
    waiting: Mapping[str, str]


def plan(demands: Sequence[Demand], free: Mapping[Role, Sequence[str]]) -> Plan:
    """Deal free workers out: highest priority first, then first come first served.

    Every experiment first gets its minimum, all or nothing, so that one cannot hold half of what it needs while another
    starves; what is left over goes round to those that want more. An experiment whose minimum is not to be had does
    not block a later one that fits.
    """
    left: dict[Role, list[str]] = {role: list(free.get(role, ())) for role in ROLES}
    grants: list[Grant] = []
    waiting: dict[str, str] = {}
    served: list[Demand] = []
    for demand in sorted(demands, key=lambda d: (-d.priority, d.submitted)):
        missing: dict[Role, int] = {role: demand.minimum.get(role, 0) - len(left[role]) for role in ROLES}
        short: dict[Role, int] = {role: count for role, count in missing.items() if count > 0}
        if short:
            waiting[demand.experiment] = _explain(short, demand, left)
            continue
        served.append(demand)
        for role in ROLES:
            grants.extend(_take(demand, role, demand.minimum.get(role, 0), left[role]))
    for demand in served:
        for role in ROLES:
            more = demand.wanted.get(role, 0) - demand.minimum.get(role, 0)
            grants.extend(_take(demand, role, min(more, len(left[role])), left[role]))
    return Plan(tuple(grants), waiting)


def _take(demand: Demand, role: Role, count: int, pool: list[str]) -> list[Grant]:
    return [Grant(demand.experiment, role, pool.pop(0)) for _ in range(max(count, 0))]


def _explain(short: Mapping[Role, int], demand: Demand, left: Mapping[Role, Sequence[str]]) -> str:
    parts = [
        f"{demand.minimum[role]} {role}{'s' if demand.minimum[role] != 1 else ''} ({len(left[role])} free)"
        for role in short
    ]
    return "waits for " + " and ".join(parts)
