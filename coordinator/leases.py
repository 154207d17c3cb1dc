"""Which workers an experiment holds, and as its how-manieth collector or evaluator each serves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from remuda.coordinator.memory import LeaseBookMemory, LeaseMemory
from remuda.wire.messages import Role

NUMBERS_KEPT = 1_000
"""Of leases that are over."""


@dataclass
class Lease:
    """One worker at work for one experiment."""

    number: int
    role: Role
    worker: str
    index: int
    life: int = 0
    """Higher than that of any worker before it in this place: a replacement does not repeat the random numbers of the
    first."""
    ready: bool = False
    """Its environments or networks are built."""
    draining: bool = False


class LeaseBook:
    """The leases of one experiment. Indices are the smallest free ones, whoever held them before."""

    def __init__(self, first_life: int = 0) -> None:
        """`first_life` is that of each place's first worker: beyond all that a former life of the run can have had."""
        self._first_life = first_life
        self._leases: dict[int, Lease] = {}
        self._lives: dict[tuple[Role, int], int] = {}
        """Of the next worker that takes a place, where there was one."""
        self._over: deque[int] = deque(maxlen=NUMBERS_KEPT)

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases.values())

    def open(self, number: int, role: Role, worker: str) -> Lease:
        """A worker was drawn from the herd."""
        taken = {lease.index for lease in self.of(role)}
        index = next(i for i in range(len(taken) + 1) if i not in taken)
        life = self._lives.get((role, index), self._first_life)
        self._lives[role, index] = life + 1
        lease = Lease(number=number, role=role, worker=worker, index=index, life=life)
        self._leases[number] = lease
        return lease

    def close(self, number: int) -> Lease | None:
        """The lease is over; None when it was already."""
        lease = self._leases.pop(number, None)
        if lease is not None:
            self._over.append(number)
        return lease

    @property
    def numbers(self) -> list[int]:
        """The newest that are over, and all that are open."""
        return [*self._over, *self._leases]

    def find(self, number: int) -> Lease | None:
        """The lease of this number while it is open."""
        return self._leases.get(number)

    def of(self, role: Role) -> list[Lease]:
        """Open leases of a role, in order of index."""
        return sorted((lease for lease in self if lease.role == role), key=lambda lease: lease.index)

    def staying(self, role: Role) -> list[Lease]:
        """Those of a role that are not about to end."""
        return [lease for lease in self.of(role) if not lease.draining]

    def ready(self, role: Role) -> list[Lease]:
        """Those of a role that can work now."""
        return [lease for lease in self.of(role) if lease.ready and not lease.draining]

    @property
    def learner(self) -> Lease | None:
        """The experiment's learner, if it has one now."""
        return next((lease for lease in self._leases.values() if lease.role == "learner"), None)

    def memory(self) -> LeaseBookMemory:
        """What a restarted coordinator has to know."""
        leases = [
            LeaseMemory(lease.number, lease.role, lease.worker, lease.index, lease.life, lease.ready, lease.draining)
            for lease in self
        ]
        lives: list[tuple[Role, int, int]] = [(role, index, life) for (role, index), life in self._lives.items()]
        return LeaseBookMemory(leases, lives, list(self._over), self._first_life)

    def remember(self, memory: LeaseBookMemory) -> None:
        """Go on from there."""
        self._leases = {
            m.number: Lease(m.number, m.role, m.worker, m.index, m.life, m.ready, m.draining) for m in memory.leases
        }
        self._over.extend(memory.over)
        self._first_life = memory.first_life
        self._lives = {(role, index): life for role, index, life in memory.lives}
