"""Which workers an experiment holds, and as which of its role each serves: collector 0, 1 and so on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, nlargest

from remuda.coordinator.memory import LeaseBookMemory, LeaseMemory
from remuda.wire.messages import Role

NUMBERS_KEPT = 1_000
"""Of leases that are over."""


@dataclass
class Lease:
    """One worker at work for one experiment. What changes is changed by the LeaseBook alone."""

    number: int
    role: Role
    worker: str
    incarnation: int
    index: int
    life: int = 0
    """Higher than that of any worker before it in this place: a replacement does not repeat the random numbers of the
    first."""
    ready: bool = False
    """Its environments or networks are built."""
    draining: bool = False
    failed: bool = False
    """Its worker has said that it failed."""

    def is_held_by(self, worker: str, incarnation: int) -> bool:
        """Whether this life of this worker does the work."""
        return (self.worker, self.incarnation) == (worker, incarnation)


class LeaseBook:
    """The leases of one experiment. Indices are the smallest free ones, whoever held them before.

    What a lease costs to open, change and close does not grow with the number of leases.
    """

    def __init__(self, first_life: int = 0) -> None:
        """`first_life` is that of each place's first worker: beyond all that a former life of the run can have had."""
        self._first_life = first_life
        self._leases: dict[int, Lease] = {}
        self._places: dict[Role, dict[int, Lease]] = {"learner": {}, "collector": {}, "evaluator": {}}
        """Open leases by index."""
        self._vacant: dict[Role, list[int]] = {"learner": [], "collector": [], "evaluator": []}
        """Heaps of the free indices below the highest that was ever taken."""
        self._draining: Counter[Role] = Counter()
        self._lives: dict[tuple[Role, int], int] = {}
        """Of the next worker that takes a place, where there was one."""
        self._mourned: set[int] = set()
        """Those that are over of which their worker has said why it was lost."""
        self._over: dict[int, tuple[str, int]] = {}
        """The newest leases that are over, and which life of which worker held each."""

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases.values())

    # --- what happens ---

    def open(self, number: int, role: Role, worker: str, incarnation: int) -> Lease:
        """A worker was drawn from the herd."""
        vacant = self._vacant[role]
        index = heappop(vacant) if vacant else len(self._places[role])
        life = self._lives.get((role, index), self._first_life)
        self._lives[role, index] = life + 1
        lease = Lease(number=number, role=role, worker=worker, incarnation=incarnation, index=index, life=life)
        self._add(lease)
        return lease

    def set_ready(self, lease: Lease) -> None:
        """Its worker can work."""
        lease.ready = True

    def set_draining(self, lease: Lease, *, ready: bool) -> None:
        """It is about to end; until then its worker is `ready` or does nothing any more."""
        if not lease.draining:
            self._draining[lease.role] += 1
        lease.ready, lease.draining = ready, True

    def close(self, number: int) -> Lease | None:
        """The lease is over; None when it was already."""
        lease = self._leases.pop(number, None)
        if lease is not None:
            del self._places[lease.role][lease.index]
            heappush(self._vacant[lease.role], lease.index)
            self._draining[lease.role] -= lease.draining
            self._over[number] = lease.worker, lease.incarnation
            if len(self._over) > NUMBERS_KEPT:
                oldest = next(iter(self._over))
                del self._over[oldest]
                self._mourned.discard(oldest)
        return lease

    def last_word(self, number: int) -> bool:
        """The worker that had this lease, which is over, says why it was lost; True for the first time."""
        first = number not in self._mourned
        self._mourned.add(number)
        return first

    def was_held_by(self, number: int, worker: str, incarnation: int) -> bool:
        """Whether this lease is over, and this life of this worker had it."""
        return self._over.get(number) == (worker, incarnation)

    # --- how it stands ---

    @property
    def numbers(self) -> list[int]:
        """The newest that are over, and all that are open."""
        return [*self._over, *self._leases]

    def find(self, number: int) -> Lease | None:
        """The lease of this number while it is open."""
        return self._leases.get(number)

    def count(self, role: Role) -> int:
        """How many of a role are open."""
        return len(self._places[role])

    def count_staying(self, role: Role) -> int:
        """How many of a role are open and not about to end."""
        return len(self._places[role]) - self._draining[role]

    def of(self, role: Role) -> list[Lease]:
        """Open leases of a role, in order of index."""
        return [lease for _, lease in sorted(self._places[role].items())]

    def ready(self, role: Role) -> list[Lease]:
        """Those of a role that can work now."""
        return [lease for lease in self.of(role) if lease.ready and not lease.draining]

    def last_staying(self, role: Role, count: int) -> list[Lease]:
        """So many of those that are not about to end, those with the highest index first."""
        staying = (lease for lease in self._places[role].values() if not lease.draining)
        return nlargest(count, staying, key=lambda lease: lease.index)

    @property
    def learner(self) -> Lease | None:
        """The experiment's learner, if it has one now."""
        return next(iter(self._places["learner"].values()), None)

    # --- over a restart ---

    def memory(self) -> LeaseBookMemory:
        """What a restarted coordinator has to know."""
        leases = [
            LeaseMemory(
                number=lease.number,
                role=lease.role,
                worker=lease.worker,
                index=lease.index,
                life=lease.life,
                ready=lease.ready,
                draining=lease.draining,
                incarnation=lease.incarnation,
            )
            for lease in self
        ]
        lives: list[tuple[Role, int, int]] = [(role, index, life) for (role, index), life in self._lives.items()]
        return LeaseBookMemory(leases, lives, list(self._over), self._first_life, list(self._over.values()))

    def remember(self, memory: LeaseBookMemory) -> None:
        """Go on from there; for a book that is empty."""
        for m in memory.leases:
            self._add(Lease(m.number, m.role, m.worker, m.incarnation, m.index, m.life, m.ready, m.draining))
            self._draining[m.role] += m.draining
        self._over |= zip(memory.over, memory.over_holders, strict=False)
        self._first_life = memory.first_life
        self._lives = {(role, index): life for role, index, life in memory.lives}
        for role, places in self._places.items():
            self._vacant[role] = [index for index in range(max(places, default=-1) + 1) if index not in places]
            heapify(self._vacant[role])

    def _add(self, lease: Lease) -> None:
        self._leases[lease.number] = lease
        self._places[lease.role][lease.index] = lease
