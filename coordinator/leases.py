"""The leases of an experiment, and the index of every worker within the role: collector 0, 1 and so on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, nlargest

from msgspec import Struct

from remuda.training.run_snapshot import ChangedRows, Rows
from remuda.training.snapshot import LeaseBookSnapshot, LeaseHolder, LeaseSnapshot, PlaceSnapshot
from remuda.wire.messages import ROLES, Role

NUMBERS_KEPT = 1_000
"""Number of closed leases to keep, plus the number of indices ever used: all workers may be lost at once and still send
late messages."""


class Sender(Struct, frozen=True):
    """One incarnation of a worker, from the identity of its connection."""

    worker: str
    incarnation: int


NOBODY = Sender("", -1)
"""Holds no lease."""


def several(role: str) -> str:
    """Return the name of several workers of a role."""
    return "inference workers" if role == "inference" else f"{role}s"


def sender_at(peer: bytes) -> Sender:
    """Return the worker named by the identity of a connection; NOBODY if the peer is no worker. See worker_identity."""
    worker, _, rest = peer.partition(b":")
    incarnation = rest.partition(b":")[0]
    if len(worker) != 36 or not worker.isascii() or not (incarnation.isdigit() and len(incarnation) <= 16):
        return NOBODY
    return Sender(worker.decode("ascii"), int(incarnation))


@dataclass
class Lease:
    """A worker's work for an experiment. Only the LeaseBook changes a lease."""

    holder: LeaseHolder
    index: int
    generation: int
    """Higher than the generation of every earlier worker with this index, so a replacement does not repeat earlier
    random numbers."""
    ready: bool = False
    """The worker's environments or networks are built."""
    draining: bool = False
    over: bool = False
    failed: bool = False
    """The worker has reported a failure."""
    recovered: bool = False
    """The lease began under an earlier coordinator: its history is unknown."""
    ready_s: float = math.inf
    """Time at which the worker became ready, or the lease was recovered."""
    worked_s: float = -math.inf
    """Time at which the worker last handed in work."""
    cpu_us: int = 0
    """Processor time in the newest report."""

    number: int = field(init=False)
    """Unique number of the lease."""
    role: Role = field(init=False)
    worker: str = field(init=False)
    """By UUID."""
    incarnation: int = field(init=False)
    policy_index: int = field(init=False)
    """Index of a learner's policy; 0 for all other workers."""

    def __post_init__(self) -> None:
        """Copy frequently used fields from the holder."""
        holder = self.holder
        self.number, self.role = holder.lease, holder.role
        self.worker, self.incarnation = holder.worker, holder.incarnation
        self.policy_index = self.index if self.role == "learner" else 0


class LeaseBook:
    """The leases of an experiment. A new lease gets the smallest free index.

    The cost of opening, changing and closing a lease does not grow with the number of leases.
    """

    def __init__(self, first_generation: int = 0, on_forget: Callable[[int], None] = lambda number: None) -> None:
        """`first_generation` is the generation of an index's first worker: higher than every generation used before a
        resume. `on_forget` is called with every dropped lease."""
        self._first_generation = first_generation
        self.open_leases: dict[int, Lease] = {}
        """By number."""
        self.by_index: dict[Role, dict[int, Lease]] = {role: {} for role in ROLES}
        """Open leases by index."""
        self._vacant: dict[Role, list[int]] = {role: [] for role in ROLES}
        """Heaps of the free indices below the highest index ever used."""
        self._draining: Counter[Role] = Counter()
        self._generations: dict[tuple[Role, int], int] = {}
        """Generation of the next worker, by role and index."""
        self._over: dict[int, Lease] = {}
        """Closed leases, in the order of the ends."""
        self._on_forget = on_forget
        self._changed = ChangedRows[int]()
        self._changed_indices: set[tuple[Role, int]] = set()

    def __len__(self) -> int:
        return len(self.open_leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self.open_leases.values())

    # --- what happens ---

    def open(self, holder: LeaseHolder) -> Lease:
        """Open a lease for a worker chosen by the scheduler."""
        role = holder.role
        vacant = self._vacant[role]
        index = heappop(vacant) if vacant else len(self.by_index[role])
        generation = self._generations.get((role, index), self._first_generation)
        self._generations[role, index] = generation + 1
        self._changed_indices.add((role, index))
        lease = Lease(holder, index, generation)
        self._add(lease)
        self._changed.put.add(lease.number)
        return lease

    def set_ready(self, lease: Lease) -> None:
        """Mark the worker as ready to work."""
        lease.ready = True
        self._changed.put.add(lease.number)

    def set_draining(self, lease: Lease, *, ready: bool) -> None:
        """Mark a lease as about to end. Until then the worker is `ready`, or does no more work."""
        if not lease.draining:
            self._draining[lease.role] += 1
        lease.ready, lease.draining = ready, True
        self._changed.put.add(lease.number)

    def set_cpu(self, lease: Lease, cpu_us: int) -> int:
        """Set the reported processor time of a lease; return the growth. An overtaken report changes nothing."""
        grown_us = max(cpu_us - lease.cpu_us, 0)
        lease.cpu_us += grown_us
        self._changed.put.add(lease.number)
        return grown_us

    def close(self, number: int) -> Lease | None:
        """End a lease; return None for a lease already over."""
        lease = self.open_leases.pop(number, None)
        if lease is not None:
            del self.by_index[lease.role][lease.index]
            heappush(self._vacant[lease.role], lease.index)
            self._draining[lease.role] -= lease.draining
            lease.over, self._over[number] = True, lease
            self._changed.put.add(number)
            self._forget_old()
        return lease

    def _forget_old(self) -> None:
        while len(self._over) > NUMBERS_KEPT + len(self._generations):
            number = next(iter(self._over))
            del self._over[number]
            self._changed.drop(number)
            self._on_forget(number)

    def was_held_by(self, number: int, sender: Sender) -> bool:
        """True if this lease is closed and this worker held it."""
        lease = self._over.get(number)
        return lease is not None and (lease.worker, lease.incarnation) == (sender.worker, sender.incarnation)

    # --- how it stands ---

    @property
    def numbers(self) -> list[int]:
        """Numbers of all open leases and of the newest closed ones."""
        return [*self._over, *self.open_leases]

    def known(self, number: int) -> Lease | None:
        """The lease of this number, open or over."""
        return self.open_leases.get(number) or self._over.get(number)

    def count(self, role: Role) -> int:
        """The number of open leases of a role."""
        return len(self.by_index[role])

    def count_staying(self, role: Role) -> int:
        """Number of open leases of a role that are not about to end."""
        return len(self.by_index[role]) - self._draining[role]

    def of(self, role: Role) -> list[Lease]:
        """Open leases of a role, in order of index."""
        return [lease for _, lease in sorted(self.by_index[role].items())]

    def ready(self, role: Role) -> list[Lease]:
        """Leases of a role with a ready worker."""
        leases = sorted(self.by_index[role].items())
        return [lease for _, lease in leases if lease.ready and not lease.draining]

    def last_staying(self, role: Role, count: int) -> list[Lease]:
        """Return this number of leases that are not about to end, highest index first."""
        staying = (lease for lease in self.by_index[role].values() if not lease.draining)
        return nlargest(count, staying, key=lambda lease: lease.index)

    def learner_of(self, policy_index: int) -> Lease | None:
        """Lease of the present learner of a policy, if any. Policies and their learners have the same indices."""
        return self.by_index["learner"].get(policy_index)

    # --- over a restart ---

    def snapshot(self) -> LeaseBookSnapshot:
        """Return the state for a restarted coordinator, without its rows."""
        return LeaseBookSnapshot(self._first_generation)

    def rows(self) -> tuple[LeaseSnapshot, ...]:
        """All rows of leases."""
        return tuple(self._row(number) for number in self.numbers)

    def rows_of_indices(self) -> tuple[PlaceSnapshot, ...]:
        """All rows of places."""
        return tuple(PlaceSnapshot(role, index, generation) for (role, index), generation in self._generations.items())

    def changes(self) -> Rows[LeaseSnapshot]:
        """Return the rows of leases changed since the last call."""
        return self._changed.take(self._row)

    def changed_indices(self) -> Rows[PlaceSnapshot]:
        """Return the rows of indices changed since the last call."""
        indices, self._changed_indices = sorted(self._changed_indices), set()
        return Rows(tuple(PlaceSnapshot(*index, self._generations[index]) for index in indices))

    def restore(self, snapshots: Sequence[LeaseBookSnapshot]) -> None:
        """Continue from the snapshots of all policies; only for an empty book. The first has all leases; in journals of
        earlier versions of Remuda each has its own learner, with index 0, and again the shared workers."""
        for policy_index, snapshot in enumerate(snapshots):
            for m in sorted(snapshot.leases, key=lambda row: row.holder.lease):
                if self.known(m.holder.lease) is None:
                    index = policy_index if policy_index and m.holder.role == "learner" else m.index
                    self._restore(Lease(m.holder, index, m.generation, m.ready, m.draining, m.over, cpu_us=m.cpu_us))
            for place in snapshot.places:
                index = policy_index if policy_index and place.role == "learner" else place.index
                known = self._generations.get((place.role, index), 0)
                self._generations[place.role, index] = max(place.generation, known)
        self._first_generation = snapshots[0].first_generation
        for role, leases in self.by_index.items():
            self._vacant[role] = [index for index in range(max(leases, default=-1) + 1) if index not in leases]
            heapify(self._vacant[role])

    def _restore(self, lease: Lease) -> None:
        if lease.over:
            self._over[lease.number] = lease
        else:
            self._add(lease)
            self._draining[lease.role] += lease.draining

    def _add(self, lease: Lease) -> None:
        self.open_leases[lease.number] = lease
        self.by_index[lease.role][lease.index] = lease

    def _row(self, number: int) -> LeaseSnapshot:
        lease = self.open_leases.get(number) or self._over[number]
        return LeaseSnapshot(
            lease.holder, lease.index, lease.generation, lease.ready, lease.draining, lease.over, lease.cpu_us
        )
