"""Which workers an experiment draws from the herd, who gives some back for others, and why one that waits does so.

Promised: an experiment that waits gets its minimum all at once; what a running one has beyond its minimum is lent to
one of the same or a higher priority that lacks its minimum, and what it has within its minimum is never taken away; so
nobody gives a worker back twice for the same need, and one whose minimum the herd has is not overtaken for ever by
later ones that need less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
    """Without these it cannot work."""
    wanted: Mapping[Role, int]
    """It takes up to so many; at least `minimum`."""
    started: bool = False
    """It has begun, and so takes what there is; one that has not takes its minimum at once or nothing."""
    patient: bool = False
    """It has not waited long enough yet for others to give workers back."""
    resting: frozenset[str] = frozenset()
    """Workers that have failed it and that it does not take for a while; others may have them."""


@dataclass(frozen=True)
class Holding:
    """What a running experiment could give back."""

    experiment: str
    name: str
    priority: int
    submitted: int
    surplus: Mapping[Role, Sequence[int]]
    """Leases beyond its minimum, the ones to go first first."""
    leaving: Mapping[Role, int] = field(default_factory=dict[Role, int])
    """How many it is giving back already."""


@dataclass(frozen=True)
class Grant:
    """One worker goes to one experiment."""

    experiment: str
    role: Role
    worker: str


@dataclass(frozen=True)
class Return:
    """A lease is to end, for the sake of an experiment that waits."""

    lease: int
    holder: str
    waiting: str


@dataclass(frozen=True)
class Plan:
    """What to assign now, what to ask back, and a sentence for each experiment that lacks something."""

    grants: tuple[Grant, ...]
    waiting: Mapping[str, str]
    returns: tuple[Return, ...] = ()


def plan(
    demands: Sequence[Demand],
    free: Mapping[Role, Sequence[str]],
    holdings: Sequence[Holding] = (),
    herd: Mapping[Role, int] | None = None,
) -> Plan:
    """Deal free workers out: highest priority first, among equals those that run already, then first come first served.

    Every experiment first gets its minimum; what is left over goes to those that want more. `herd` is how many
    workers of each role there are, held ones included (default: the free ones).
    """
    dealing = _Dealing(free, holdings, herd or {role: len(free.get(role, ())) for role in ROLES})
    order = sorted(demands, key=lambda d: (-d.priority, not d.started, d.submitted))
    for demand in order:
        dealing.deal_minimum(demand)
    for demand in dealing.served:
        dealing.deal_more(demand)
    return Plan(tuple(dealing.grants), dealing.waiting, tuple(dealing.returns))


class _Dealing:
    """One round of `plan`: a pool of workers per role, from which everybody in turn takes or has something kept."""

    def __init__(
        self, free: Mapping[Role, Sequence[str]], holdings: Sequence[Holding], herd: Mapping[Role, int]
    ) -> None:
        self._herd = herd
        self._holdings = sorted(holdings, key=lambda h: (h.priority, -h.submitted))
        self._free = {role: list(free.get(role, ())) for role in ROLES}
        self._leaving = {r: [h for h in holdings for _ in range(h.leaving.get(r, 0))] for r in ROLES}
        """Who is giving workers back that nobody else counts on yet."""
        self._surplus = {(h.experiment, r): list(h.surplus.get(r, ())) for h in holdings for r in ROLES}
        self._claimed: Counter[Role] = Counter()
        """Free ones that are not for those who come later."""
        self._reserved: Counter[Role] = Counter()
        """Those of them that nobody may have in the meantime: the rest of somebody's minimum is on its way."""
        self.grants: list[Grant] = []
        self.returns: list[Return] = []
        self.waiting: dict[str, str] = {}
        self.served: list[Demand] = []

    def deal_minimum(self, demand: Demand) -> None:
        """Give it its minimum; else see who can help out, and say what it waits for."""
        there = {role: self._there(demand, role, self._claimed[role]) for role in ROLES}
        missing: dict[Role, int] = {role: demand.minimum.get(role, 0) - there[role] for role in ROLES}
        short: dict[Role, int] = {role: count for role, count in missing.items() if count > 0}
        if short:
            self.waiting[demand.experiment] = self._call_in(demand, short)
        if demand.started or not short:
            self.served.append(demand)
            for role in ROLES:
                self._take(demand, role, min(demand.minimum.get(role, 0), there[role]))

    def deal_more(self, demand: Demand) -> None:
        """Give it what it wants beyond its minimum, of what nobody waits for."""
        for role in ROLES:
            more = demand.wanted.get(role, 0) - demand.minimum.get(role, 0)
            self._take(demand, role, min(more, self._there(demand, role, self._reserved[role])))

    def _there(self, demand: Demand, role: Role, kept: int) -> int:
        """How many free ones it may have, `kept` of them being for others."""
        free = len(self._free[role])
        return min(free - kept, free - self._resting(demand, role))

    def _resting(self, demand: Demand, role: Role) -> int:
        """How many free ones it does not take."""
        return sum(worker in demand.resting for worker in self._free[role]) if demand.resting else 0

    def _take(self, demand: Demand, role: Role, count: int) -> None:
        taken = [worker for worker in self._free[role] if worker not in demand.resting][: max(count, 0)]
        self.grants += [Grant(demand.experiment, role, worker) for worker in taken]
        self._free[role] = [worker for worker in self._free[role] if worker not in taken]

    def _call_in(self, demand: Demand, short: Mapping[Role, int]) -> str:
        """Have what it lacks given back, if that helps; returns what it waits for."""
        free: dict[Role, tuple[int, int]] = {
            role: (len(self._free[role]), self._resting(demand, role)) for role in short
        }
        if any(self._herd.get(role, 0) < demand.minimum[role] for role in short):
            return _explain(demand, free, {})  # the herd is too small: nobody is held up for its sake
        coming: dict[Role, list[Holding]] = {role: self._on_their_way(role, count) for role, count in short.items()}
        lent: dict[Role, list[tuple[Holding, int]]] = {
            role: self._lent(demand, role, count - len(coming[role])) for role, count in short.items()
        }
        suffices = all(len(coming[role]) + len(lent[role]) >= count for role, count in short.items())
        if not demand.started:
            for role in ROLES:
                kept = min(demand.minimum.get(role, 0), self._there(demand, role, self._claimed[role]))
                self._claimed[role] += kept
                self._reserved[role] += kept if suffices else 0
        if (suffices or demand.started) and not demand.patient:
            for role, leases in lent.items():
                coming[role] += [holding for holding, _ in leases]
                self.returns += [Return(lease, holding.experiment, demand.experiment) for holding, lease in leases]
        return _explain(demand, free, coming)

    def _on_their_way(self, role: Role, count: int) -> list[Holding]:
        coming, self._leaving[role] = self._leaving[role][:count], self._leaving[role][count:]
        return coming

    def _lent(self, demand: Demand, role: Role, count: int) -> list[tuple[Holding, int]]:
        """Leases that others of no higher priority can spare: the least important first, the latest among equals, and
        of those the one that has most to spare."""
        lent: list[tuple[Holding, int]] = []
        lenders = [h for h in self._holdings if h.priority <= demand.priority and h.experiment != demand.experiment]
        while len(lent) < count:
            able = [h for h in lenders if self._surplus[h.experiment, role]]
            if not able:
                break
            lender = min(able, key=lambda h: (h.priority, -len(self._surplus[h.experiment, role])))
            lent.append((lender, self._surplus[lender.experiment, role].pop(0)))
        return lent


def _explain(demand: Demand, free: Mapping[Role, tuple[int, int]], coming: Mapping[Role, Sequence[Holding]]) -> str:
    """`free` is how many are free, and how many of those rest."""
    parts: list[str] = []
    for role, (there, resting) in free.items():
        count = demand.minimum[role]
        kept = ", kept for those before it" if there - resting >= count else ""
        rests = f", {resting} of them resting after a failure" if resting else ""
        names = ", ".join(sorted({holding.name for holding in coming.get(role, ())}))
        back = f", {len(coming[role])} coming back from {names}" if names else ""
        parts.append(f"{count} {role}{'s' if count != 1 else ''} ({there} free{kept}{rests}{back})")
    return "waits for " + " and ".join(parts)
