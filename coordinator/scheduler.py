"""Distribution of the herd: assignments, returns for waiting experiments, and the reasons for waiting.

Promises: a waiting experiment gets the minimum all at once. Workers of a running experiment beyond the minimum are lent
to experiments of the same or a higher priority below the minimum. A preemptible run gives all workers back to a run of
higher priority that is not ending; no other run gives its minimum away. A worker is given back only once for the same
need. Free workers too few for a waiting experiment go to smaller experiments for a while; then free workers are kept
for a while (see may_be_overtaken). Useful workers are not idle for long, and smaller experiments do not overtake
forever an experiment with a minimum within the herd.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from remuda.wire.messages import ROLES, Role


@dataclass(frozen=True)
class Demand:
    """Workers that an experiment still needs, by role."""

    experiment: str
    priority: int
    submitted: int
    """Order of submission; among equal priorities the earlier goes first."""
    minimum: Mapping[Role, int]
    """Workers without which the experiment cannot work."""
    wanted: Mapping[Role, int]
    """Maximum number of workers; at least `minimum`."""
    started: bool = False
    """The experiment has begun, so any free worker is taken. Otherwise the minimum is taken at once or not at all."""
    patient: bool = False
    """The wait is still short: other experiments need not give workers back."""
    yields: bool = False
    """Others may overtake: free workers too few for this experiment are not kept now."""
    preempts: bool = True
    """May preempt runs of lower priority."""
    resting: frozenset[str] = frozenset()
    """Workers not taken for a while, after a failure for this experiment; free for the remaining experiments."""
    share_hours: float = 0.0
    """Use of its account; among equal priorities less goes first. See Shares."""
    accounts: tuple[str, ...] = ()
    """Accounts that it is charged to."""


@dataclass(frozen=True)
class Holding:
    """Workers that a running experiment could give back."""

    experiment: str
    name: str
    priority: int
    submitted: int
    surplus: Mapping[Role, int]
    """Number of workers beyond the minimum."""
    leaving: Mapping[Role, int] = field(default_factory=dict[Role, int])
    """Number of workers already returning."""
    share_hours: float = 0.0
    """As in Demand; among equal priorities more gives back first."""
    preemptible: Mapping[Role, int] = field(default_factory=dict[Role, int])
    """All workers of a run that may be preempted; empty for all other runs."""


@dataclass(frozen=True)
class Grant:
    """A worker goes to an experiment."""

    experiment: str
    role: Role
    worker: str


@dataclass(frozen=True)
class Return:
    """An experiment gives this number of workers back, for another."""

    holder: str
    role: Role
    count: int
    waiting: str


@dataclass(frozen=True)
class Preempt:
    """An experiment hands in and gives all its workers back, for another of higher priority."""

    holder: str
    waiting: str


@dataclass(frozen=True)
class Plan:
    """Assignments and returns to carry out now, and a sentence for each waiting experiment."""

    grants: tuple[Grant, ...]
    waiting: Mapping[str, str]
    returns: tuple[Return, ...] = ()
    preemptions: tuple[Preempt, ...] = ()


def plan(
    demands: Sequence[Demand],
    free: Mapping[Role, Collection[str]],
    holdings: Sequence[Holding] = (),
    herd: Mapping[Role, int] | None = None,
    room: Mapping[str, tuple[int, int]] | None = None,
) -> Plan:
    """Distribute free workers: highest priority first; among equals the running experiments, then those of the account
    with the least use, then in order of submission.

    Every experiment first gets the minimum; the rest goes to experiments with further wishes. `free` has the workers by
    role in the order of use; the cost depends on the number of assignments, not of free workers. `herd` is the number
    of workers by role, with held workers (default: the free workers). `room`: most and present workers of accounts with
    such a limit.
    """
    dealing = _Dealing(free, holdings, herd or {role: len(free.get(role, ())) for role in ROLES}, room or {})
    order = sorted(demands, key=lambda d: (-d.priority, not d.started, d.share_hours, d.submitted))
    for demand in order:
        dealing.deal_minimum(demand)
    for demand in dealing.served:
        dealing.deal_more(demand)
    return Plan(tuple(dealing.grants), dealing.waiting, tuple(dealing.returns), tuple(dealing.preemptions))


class _Pool:
    """The free workers of a role, taken from the front. The cost depends on the taken and resting workers only."""

    def __init__(self, free: Collection[str]) -> None:
        self._free = free
        self._rest = iter(free)
        self._passed_over: list[str] = []
        """Workers that rest for an experiment; free for the remaining experiments."""
        self._taken: set[str] = set()

    def __len__(self) -> int:
        return len(self._free) - len(self._taken)

    def count(self, workers: Collection[str]) -> int:
        """Return the number of these workers in the pool."""
        return sum(worker in self._free and worker not in self._taken for worker in workers)

    def take(self, count: int, resting: Collection[str]) -> list[str]:
        """Take up to so many workers, without the `resting` workers."""
        taken: list[str] = []
        passed_over, self._passed_over = self._passed_over, []
        for worker in passed_over:
            fits = len(taken) < count and worker not in resting
            (taken if fits else self._passed_over).append(worker)
        while len(taken) < count and (other := next(self._rest, None)) is not None:
            (self._passed_over if other in resting else taken).append(other)
        self._taken.update(taken)
        return taken


class _Dealing:
    """One round of `plan`: a pool of workers per role; every experiment in turn takes or reserves workers."""

    def __init__(
        self,
        free: Mapping[Role, Collection[str]],
        holdings: Sequence[Holding],
        herd: Mapping[Role, int],
        room: Mapping[str, tuple[int, int]],
    ) -> None:
        self._herd = herd
        self._room = dict(room)
        self._holdings = sorted(holdings, key=lambda h: (h.priority, -h.share_hours, -h.submitted))
        self._free = {role: _Pool(free.get(role, ())) for role in ROLES}
        self._leaving = {r: [h for h in holdings for _ in range(h.leaving.get(r, 0))] for r in ROLES}
        """Experiments with returning workers, not counted on by any other experiment yet."""
        self._surplus = {(h.experiment, r): h.surplus.get(r, 0) for h in holdings for r in ROLES}
        self._claimed: Counter[Role] = Counter()
        """Free workers kept from later experiments."""
        self._reserved: Counter[Role] = Counter()
        """Reserved workers among them: the rest of a minimum is about to come."""
        self.grants: list[Grant] = []
        self.returns: list[Return] = []
        self.preemptions: list[Preempt] = []
        self.waiting: dict[str, str] = {}
        self.served: list[Demand] = []

    def deal_minimum(self, demand: Demand) -> None:
        """Assign the minimum; otherwise find workers to be returned, and record the reason for waiting."""
        if not demand.started and (why := self._limit(demand)) is not None:
            self.waiting[demand.experiment] = why
            return
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
        """Assign workers beyond the minimum, unless awaited by a different experiment."""
        for role in ROLES:
            more = demand.wanted.get(role, 0) - demand.minimum.get(role, 0)
            self._take(demand, role, min(more, self._there(demand, role, self._reserved[role])))

    def _there(self, demand: Demand, role: Role, kept: int) -> int:
        """Return the number of free workers for this experiment; `kept` free workers are reserved."""
        free = len(self._free[role])
        return min(free - kept, free - self._free[role].count(demand.resting))

    def _take(self, demand: Demand, role: Role, count: int) -> None:
        limits = [(name, *self._room[name]) for name in demand.accounts if name in self._room]
        count = min([count, *(most - present for _, most, present in limits)])
        if count > 0:
            workers = self._free[role].take(count, demand.resting)
            self.grants += [Grant(demand.experiment, role, worker) for worker in workers]
            self._room |= {name: (most, present + len(workers)) for name, most, present in limits}

    def _limit(self, demand: Demand) -> str | None:
        """Return the reason why the limit of an account leaves no room for the minimum; None if there is room."""
        least = sum(demand.minimum.values())
        found = ((name, *self._room[name]) for name in demand.accounts if name in self._room)
        for name, most, present in found:
            if present + least > most:
                return (
                    f"waits for its quota: {name} may hold {most} workers at a time and holds {present}; it begins "
                    f"with {least} when {present + least - most} are given back, or once an operator types "
                    f"`remuda quota set {name} --workers {present + least}` or more"
                )
        return None

    def _call_in(self, demand: Demand, short: Mapping[Role, int]) -> str:
        """Ask others to return missing workers, if useful; return the reason for waiting."""
        free: dict[Role, tuple[int, int]] = {
            role: (len(self._free[role]), self._free[role].count(demand.resting)) for role in short
        }
        if any(self._herd.get(role, 0) < demand.minimum[role] for role in short):
            return _explain(demand, free, {})  # the herd is too small: nobody is held up for its sake
        coming: dict[Role, list[Holding]] = {role: self._leaving[role][:count] for role, count in short.items()}
        lent: dict[Role, Counter[str]] = {
            role: self._lent(demand, role, count - len(coming[role])) for role, count in short.items()
        }
        suffices = all(len(coming[role]) + lent[role].total() >= count for role, count in short.items())
        suffices = suffices or self._preempt(demand, short, coming, lent)
        if demand.yields and not suffices and not demand.started:
            return _explain(demand, free, {})  # others may have what is there: it is not enough in any case
        self._count_on(coming, lent)
        if not demand.started:
            for role in ROLES:
                kept = min(demand.minimum.get(role, 0), self._there(demand, role, self._claimed[role]))
                self._claimed[role] += kept
                self._reserved[role] += kept if suffices else 0
        if (suffices or demand.started) and not demand.patient:
            holdings = {holding.experiment: holding for holding in self._holdings}
            for role, counts in lent.items():
                coming[role] += [holdings[lender] for lender in counts.elements()]
                self.returns += [Return(who, role, count, demand.experiment) for who, count in counts.items()]
        return _explain(demand, free, coming)

    def _count_on(self, coming: Mapping[Role, Sequence[Holding]], lent: Mapping[Role, Counter[str]]) -> None:
        """Mark these workers as taken from later experiments."""
        for role, holdings in coming.items():
            self._leaving[role] = self._leaving[role][len(holdings) :]
        for role, counts in lent.items():
            for lender, count in counts.items():
                self._surplus[lender, role] -= count

    def _preempt(
        self,
        demand: Demand,
        short: Mapping[Role, int],
        coming: dict[Role, list[Holding]],
        lent: dict[Role, Counter[str]],
    ) -> bool:
        """Preempt runs, lowest priority first, if their workers suffice; change `coming` and `lent` accordingly."""
        missing: dict[Role, int] = {role: count - len(coming[role]) for role, count in short.items()}
        taken = self._preemptible(demand, missing)
        names = {holding.experiment for holding in taken}
        others = {role: Counter({who: n for who, n in lent[role].items() if who not in names}) for role in short}
        for role in short:
            given = [each for each in taken for _ in range(each.preemptible.get(role, 0))][: missing[role]]
            if len(given) + others[role].total() < missing[role]:
                return False
            others[role] = Counter([*others[role].elements()][: missing[role] - len(given)])
        self.preemptions += [Preempt(each.experiment, demand.experiment) for each in taken]
        for role in short:
            coming[role] += [each for each in taken for _ in range(each.preemptible.get(role, 0))][: missing[role]]
            lent[role] = others[role]
        return bool(taken)

    def _preemptible(self, demand: Demand, missing: Mapping[Role, int]) -> list[Holding]:
        """Return preemptible runs with missing workers, until their workers suffice."""
        left: dict[Role, int] = dict(missing)
        taken: list[Holding] = []
        done = {preemption.holder for preemption in self.preemptions}
        for holding in self._holdings if demand.preempts and not demand.patient else ():
            gives = holding.preemptible
            if holding.priority >= demand.priority or holding.experiment in done:
                continue
            if any(left[role] > 0 and gives.get(role, 0) for role in left):
                taken.append(holding)
                left = {role: count - gives.get(role, 0) for role, count in left.items()}
        return taken

    def _lent(self, demand: Demand, role: Role, count: int) -> Counter[str]:
        """Return the workers to spare of other experiments with no higher priority. The order is: lowest priority
        first, then the latest submission, then the most to spare."""
        able = [
            (
                (holding.priority, -holding.share_hours),
                -self._surplus[holding.experiment, role],
                place,
                holding.experiment,
            )
            for place, holding in enumerate(self._holdings)
            if holding.priority <= demand.priority and holding.experiment != demand.experiment
        ]
        able = [lender for lender in able if lender[1] < 0]
        heapify(able)
        lent: Counter[str] = Counter()
        for _ in range(count):
            if not able:
                break
            priority, spare, place, lender = able[0]
            lent[lender] += 1
            if spare == -1:
                heappop(able)
            else:
                heapreplace(able, (priority, spare + 1, place, lender))
        return lent


def _explain(demand: Demand, free: Mapping[Role, tuple[int, int]], coming: Mapping[Role, Sequence[Holding]]) -> str:
    """`free`: number of free workers of each role, and of resting workers among the free."""
    parts: list[str] = []
    for role, (there, resting) in free.items():
        count = demand.minimum[role]
        kept = ", kept for those before it" if there - resting >= count else ""
        rests = f", {resting} of them resting after a failure" if resting else ""
        names = ", ".join(sorted({holding.name for holding in coming.get(role, ())}))
        back = f", {len(coming[role])} coming back from {names}" if names else ""
        parts.append(f"{count} {role}{'s' if count != 1 else ''} ({there} free{kept}{rests}{back})")
    return (
        "waits for " + " and ".join(parts) + ("" if demand.started or any(coming.values()) else _way_out(demand, free))
    )


def _way_out(demand: Demand, free: Mapping[Role, tuple[int, int]]) -> str:
    """Return what would let a queued experiment begin at once."""
    lacking = {role: demand.minimum[role] - there for role, (there, _) in free.items() if demand.minimum[role] > there}
    commands = [f"`remuda worker {role}{f' --count {count}' if count > 1 else ''}`" for role, count in lacking.items()]
    return f"; it begins when these are free, or at once with {' and '.join(commands)}" if commands else ""
