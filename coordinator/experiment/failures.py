"""Failures of one run: of its workers, of processes that die without a word, and of what is known here of the run.

A process that dies gives no reason: it may be the environment, or a library that the run uses. Chunks that it handed in
before prove nothing, since the next incarnation may die at the same place. A lease that works for a while does prove
that the role can work: so a run that loses a worker now and then never fails for it, however long it takes.
"""

from __future__ import annotations

import traceback
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from remuda.coordinator.effects import Broken, Step
from remuda.training.changed_rows import ChangedRows
from remuda.training.identity import Identity
from remuda.training.snapshot import DeathsSnapshot, FailuresSnapshot, RestSnapshot, Rows
from remuda.wire.messages import Role, shortened

FAILURES_IN_A_ROW = 5
"""Failures in a row, of any workers, after which an experiment fails. A counted chunk or a finished update ends the
row."""
LEAST_S = 7.0
"""The least time since the first of them. Many workers that fail at the same moment may have one passing cause: then
the experiment takes no worker until this time is over, and the next failure is the last."""
FIRST_REST_S = 1.0
"""How long a worker that has failed is not taken again; twice as long after each further failure in a row."""
LONGEST_REST_S = 32.0
WORKERS_KEPT = 1_000
"""How many workers' failures are kept: those that failed last."""
GOOD_LEASE_S = 30.0
"""A lease whose worker still hands in work this long after it was ready shows that the role can do its work: deaths
before it are forgotten, and its own death does not count."""
_CONTAINED = "; an environment in a process of its own (env.vectorization: async) ends no collector when it crashes"


@dataclass
class Streak:
    """Failures of one kind in a row."""

    count: int = 0
    first_s: float = 0.0

    def add(self, now_s: float) -> None:
        """Count a failure."""
        if self.count == 0:
            self.first_s = now_s
        self.count += 1

    def hopeless(self, now_s: float, *, passing: bool = True) -> bool:
        """Whether the experiment has to fail. `passing`: the cause of the last failure may pass by itself."""
        return self.count >= FAILURES_IN_A_ROW and (not passing or now_s >= self.first_s + LEAST_S)

    def rest_s(self, now_s: float) -> float:
        """Seconds for which the experiment still takes no workers."""
        return max(0.0, self.first_s + LEAST_S - now_s) if self.count >= FAILURES_IN_A_ROW else 0.0


@dataclass
class _Record:
    """One worker's failures for this experiment."""

    in_all: int = 0
    in_a_row: int = 0
    """Without any work of this worker in between."""
    until_s: float = 0.0
    """It is not taken before this time."""


class Failures:
    """Counts the failures of one experiment."""

    def __init__(self) -> None:
        self._workers: dict[str, _Record] = {}
        """In the order of their last failures."""
        self._resting: dict[str, _Record] = {}
        self._changed = ChangedRows[str]()
        self._streak = Streak()

    def failed(self, worker: str, now_s: float) -> int:
        """A worker (by UUID) has failed; returns how many failures it has had."""
        self.counted(now_s)
        record = self._workers[worker] = self._workers.pop(worker) if worker in self._workers else _Record()
        record.in_all += 1
        record.in_a_row += 1
        record.until_s = now_s + min(FIRST_REST_S * 2 ** (record.in_a_row - 1), LONGEST_REST_S)
        self._resting[worker] = record
        self._changed.put.add(worker)
        if len(self._workers) > WORKERS_KEPT:
            self._forget(next(iter(self._workers)))
        return record.in_all

    def _forget(self, worker: str) -> None:
        del self._workers[worker]
        self._resting.pop(worker, None)
        self._changed.drop(worker)

    def counted(self, now_s: float) -> None:
        """Count a failure after which no worker rests."""
        self._streak.add(now_s)

    def worked(self, worker: str, *, counts: bool = False) -> None:
        """This worker has done some work: its next failure is the first in a row. `counts`: something was counted or
        learned, so the next failure of any worker is."""
        if counts:
            self._streak.count = 0
        if worker in self._workers and self._workers[worker].in_a_row:
            self._workers[worker].in_a_row = 0
            self._changed.put.add(worker)

    @property
    def in_a_row(self) -> int:
        """Failures since anything was counted or learned."""
        return self._streak.count

    def hopeless(self, now_s: float, *, passing: bool = True) -> bool:
        """Whether the experiment has to fail. `passing`: the cause of the last failure may pass by itself."""
        return self._streak.hopeless(now_s, passing=passing)

    def rest_s(self, now_s: float) -> float:
        """Seconds for which the experiment still takes no workers."""
        return self._streak.rest_s(now_s)

    def resting(self, now_s: float) -> frozenset[str]:
        """Workers (by UUID) that must not be taken now."""
        self._resting = {worker: record for worker, record in self._resting.items() if now_s < record.until_s}
        return frozenset(self._resting)

    # --- over a restart ---

    def snapshot(self, now_s: float) -> FailuresSnapshot:
        """What a restarted coordinator needs, without its rows; times as seconds from now."""
        return FailuresSnapshot(now_s - self._streak.first_s if self._streak.count else 0.0)

    def rows(self, now_s: float) -> tuple[RestSnapshot, ...]:
        """All rows."""
        return tuple(self._row(worker, now_s) for worker in self._workers)

    def changes(self, now_s: float) -> Rows[RestSnapshot]:
        """Rows that have changed since the last call."""
        return self._changed.take(lambda worker: self._row(worker, now_s))

    def _row(self, worker: str, now_s: float) -> RestSnapshot:
        record = self._workers[worker]
        return RestSnapshot(worker, record.in_all, record.in_a_row, max(0.0, record.until_s - now_s))

    def restore(self, snapshot: FailuresSnapshot, in_a_row: int, now_s: float) -> None:
        """Continue from a snapshot."""
        self._streak = Streak(in_a_row, now_s - snapshot.elapsed_s)
        self._workers = {m.worker: _Record(m.in_all, m.in_a_row, now_s + m.rest_s) for m in snapshot.workers}
        self._resting = dict(self._workers)


@dataclass
class _Served:
    """What is known about an open lease."""

    counts: bool
    """It began under this coordinator. For a recovered lease, too little is known about its time before."""
    since_s: float | None = None
    """When its work began; None while it is prepared."""
    good: bool = False


@dataclass
class _OfRole:
    streak: Streak = field(default_factory=Streak)
    newest: deque[tuple[str, str]] = field(default_factory=lambda: deque[tuple[str, str]](maxlen=FAILURES_IN_A_ROW))
    """The newest deaths: workers (by UUID) and how they ended."""


class Deaths:
    """Counts the deaths of one experiment's workers, separately for each role."""

    def __init__(self) -> None:
        self._served: dict[int, _Served] = {}
        self._roles: dict[Role, _OfRole] = {}

    # --- leases ---

    def begun(self, lease: int) -> None:
        """A worker was drawn from the herd."""
        self._served[lease] = _Served(counts=True)

    def taken_up(self, lease: int, now_s: float) -> None:
        """A lease that was open when an earlier coordinator ended."""
        self._served[lease] = _Served(counts=False, since_s=now_s)

    def ready(self, lease: int, now_s: float) -> None:
        """The worker of this lease is ready."""
        if lease in self._served:
            self._served[lease].since_s = now_s

    def worked(self, lease: int, role: Role, now_s: float) -> None:
        """The worker of this lease has handed in some work."""
        served = self._served.get(lease)
        if served is not None and served.since_s is not None and now_s - served.since_s >= GOOD_LEASE_S:
            served.good = True
            self._roles.pop(role, None)

    def ended(self, lease: int) -> None:
        """The lease ended in another way than by a death."""
        self._served.pop(lease, None)

    def died(self, lease: int, role: Role, worker: str, how: str, now_s: float) -> None:
        """The process of its worker ended without a message."""
        served = self._served.pop(lease, None)
        if served is None or not served.counts or served.good:
            return
        of_role = self._roles.setdefault(role, _OfRole())
        of_role.streak.add(now_s)
        of_role.newest.append((worker, how))

    def explained(self, worker: str, how: str) -> None:
        """It has become known how a lost worker ended."""
        for of_role in self._roles.values():
            known = [(uuid, how if uuid == worker and was.startswith("lost") else was) for uuid, was in of_role.newest]
            of_role.newest.clear()
            of_role.newest.extend(known)

    # --- what follows ---

    def hopeless(self, now_s: float) -> str | None:
        """Why the experiment has to fail; None if it has not."""
        for role, of_role in self._roles.items():
            if of_role.streak.hopeless(now_s):
                often = Counter(how for _, how in of_role.newest)
                hows = ", ".join(f"{how} ({times} times)" if times > 1 else how for how, times in often.items())
                return shortened(
                    f"{of_role.streak.count} deaths of {role}s in a row, none of which had worked for "
                    f"{GOOD_LEASE_S:g} s; the last: {hows}; what they wrote to standard error may say why"
                    + (_CONTAINED if role == "collector" else "")
                )
        return None

    def rest_s(self, now_s: float) -> float:
        """Seconds for which the experiment still takes no workers."""
        if not self._roles:
            return 0.0
        return max((of_role.streak.rest_s(now_s) for of_role in self._roles.values()), default=0.0)

    # --- over a restart ---

    def snapshot(self, now_s: float) -> list[DeathsSnapshot]:
        """What a restarted coordinator needs; times as seconds from now."""
        return [
            DeathsSnapshot(role, of_role.streak.count, now_s - of_role.streak.first_s, list(of_role.newest))
            for role, of_role in self._roles.items()
        ]

    def restore(self, snapshot: list[DeathsSnapshot], now_s: float) -> None:
        """Continue from a snapshot."""
        for each in snapshot:
            newest = deque(each.newest, maxlen=FAILURES_IN_A_ROW)
            self._roles[each.role] = _OfRole(Streak(each.in_a_row, now_s - each.elapsed_s), newest)


P = ParamSpec("P")


class _Known(Protocol):
    @property
    def identity(self) -> Identity: ...


RunT = TypeVar("RunT", bound=_Known)


def bulkhead(method: Callable[Concatenate[RunT, P], list[Step]]) -> Callable[Concatenate[RunT, P], list[Step]]:
    """An error inside an experiment: it ends that experiment, no other, and not the coordinator."""

    @wraps(method)
    def contained(self: RunT, /, *arguments: P.args, **named: P.kwargs) -> list[Step]:
        try:
            return method(self, *arguments, **named)
        except Exception as error:
            return [Broken(self.identity.id, f"{type(error).__name__}: {error}", traceback.format_exc())]

    return contained
