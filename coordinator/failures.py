"""Failures and deaths of an experiment's workers: resting workers, and the end of a hopeless experiment.

A process that dies gives no reason: the environment, or a library of the run, may have ended it. Chunks from before the
death prove nothing, since the next incarnation may die at the same point. A lease with work for a while proves the
role. Occasional deaths never fail a run, however long the run takes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from remuda.coordinator.leases import Lease, several
from remuda.training.run_snapshot import ChangedRows, Rows
from remuda.training.snapshot import DeathsSnapshot, FailuresSnapshot, RestSnapshot
from remuda.wire.messages import Role, shortened

FAILURES_IN_A_ROW = 5
"""Failures in a row, of any workers, after which an experiment fails. A counted chunk or a finished update ends the
row."""
LEAST_S = 7.0
"""Minimum time since the first of these failures. Many simultaneous failures may have one passing cause: then the
experiment takes no worker until this time is over, and the next failure is final."""
FIRST_REST_S = 1.0
"""Pause before a failed worker is taken again; doubled after each further failure in a row."""
LONGEST_REST_S = 32.0
WORKERS_KEPT = 1_000
"""Number of workers with kept failures: the most recent failures."""
GOOD_LEASE_S = 30.0
"""A worker that hands in work this long after becoming ready proves the role: earlier deaths are forgotten, and the
death of this worker does not count."""
_CONTAINED = "; an environment in a process of its own (env.vectorization: async) ends no collector when it crashes"


@dataclass
class Streak:
    """Failures of the same kind in a row."""

    count: int = 0
    first_s: float = 0.0

    def add(self, now_s: float) -> None:
        """Count a failure."""
        if self.count == 0:
            self.first_s = now_s
        self.count += 1

    def hopeless(self, now_s: float, *, passing: bool = True) -> bool:
        """True if the experiment has to fail. `passing`: the cause of the last failure may pass by itself."""
        return self.count >= FAILURES_IN_A_ROW and (not passing or now_s >= self.first_s + LEAST_S)

    def rest_s(self, now_s: float) -> float:
        """Seconds for which the experiment still takes no workers."""
        return max(0.0, self.first_s + LEAST_S - now_s) if self.count >= FAILURES_IN_A_ROW else 0.0


@dataclass
class _Record:
    """A worker's failures for this experiment."""

    in_all: int = 0
    in_a_row: int = 0
    """Without any work of this worker in between."""
    until_s: float = 0.0
    """The worker is not taken before this time."""


@dataclass
class _Deaths:
    """Deaths in a role."""

    streak: Streak = field(default_factory=Streak)
    newest: deque[tuple[str, str]] = field(default_factory=lambda: deque[tuple[str, str]](maxlen=FAILURES_IN_A_ROW))
    """The newest deaths: workers (by UUID) and how they ended."""


class Failures:
    """Counts failures reported by workers, all together, and deaths without a message, by role."""

    def __init__(self) -> None:
        self.none = True
        """No failure or death counts at the moment, so work changes nothing here."""
        self._workers: dict[str, _Record] = {}
        """In the order of their last failures."""
        self._unmended: set[str] = set()
        """Workers that have failed and not worked since."""
        self._resting: dict[str, _Record] = {}
        self._changed = ChangedRows[str]()
        self._reported = Streak()
        self._deaths: dict[Role, _Deaths] = {}

    # --- events ---

    def failed(self, worker: str, now_s: float) -> int:
        """Count a failure reported by a worker (by UUID); return the number of failures."""
        self.counted(now_s)
        record = self._workers[worker] = self._workers.pop(worker) if worker in self._workers else _Record()
        record.in_all += 1
        record.in_a_row += 1
        record.until_s = now_s + min(FIRST_REST_S * 2 ** (record.in_a_row - 1), LONGEST_REST_S)
        self._resting[worker] = record
        self._unmended.add(worker)
        self._changed.put.add(worker)
        if len(self._workers) > WORKERS_KEPT:
            self._forget(next(iter(self._workers)))
        return record.in_all

    def counted(self, now_s: float) -> None:
        """Count a failure after which no worker rests."""
        self._reported.add(now_s)
        self.none = False

    def worked(self, worker: str, lease: Lease | None, *, counts: bool = False) -> None:
        """Record work of a worker under this open lease: the worker's next failure is the first in a row. `counts`: a
        chunk was counted or an update done, so the next failure of any worker is the first."""
        if counts:
            self._reported.count = 0
        if worker in self._unmended:
            self._unmended.remove(worker)
            self._workers[worker].in_a_row = 0
            self._changed.put.add(worker)
        if lease is not None and _is_good(lease):
            self._deaths.pop(lease.role, None)
        self.none = not (self._reported.count or self._deaths or self._unmended)

    def died(self, lease: Lease, how: str, now_s: float) -> None:
        """Count the end of a worker's process without a message, unless the lease was good or recovered."""
        if lease.recovered or _is_good(lease):
            return
        deaths = self._deaths.setdefault(lease.role, _Deaths())
        deaths.streak.add(now_s)
        deaths.newest.append((lease.worker, how))
        self.none = False

    def explained(self, worker: str, how: str) -> None:
        """Note how a lost worker ended."""
        for deaths in self._deaths.values():
            known = [(uuid, how if uuid == worker and was.startswith("lost") else was) for uuid, was in deaths.newest]
            deaths.newest.clear()
            deaths.newest.extend(known)

    # --- consequences ---

    @property
    def in_a_row(self) -> int:
        """Reported failures since anything was counted or learned."""
        return self._reported.count

    def hopeless(self, now_s: float, *, passing: bool = True) -> bool:
        """True if the experiment has to fail for reported failures. `passing`: the cause of the
        last failure may pass."""
        return self._reported.hopeless(now_s, passing=passing)

    def hopeless_deaths(self, now_s: float) -> str | None:
        """Reason to fail the experiment because of deaths; None otherwise."""
        for role, deaths in self._deaths.items():
            if deaths.streak.hopeless(now_s):
                often = Counter(how for _, how in deaths.newest)
                hows = ", ".join(f"{how} ({times} times)" if times > 1 else how for how, times in often.items())
                return shortened(
                    f"{deaths.streak.count} deaths of {several(role)} in a row, none of which had worked for "
                    f"{GOOD_LEASE_S:g} s; the last: {hows}; what they wrote to standard error may say why"
                    + (_CONTAINED if role == "collector" else "")
                )
        return None

    def rest(self, now_s: float) -> tuple[float, int]:
        """Seconds for which the experiment still takes no workers, and the number of failures or deaths in a row."""
        streaks = (self._reported, *(deaths.streak for deaths in self._deaths.values()))
        longest = max(streaks, key=lambda streak: streak.rest_s(now_s))
        return longest.rest_s(now_s), longest.count

    def resting(self, now_s: float) -> frozenset[str]:
        """Workers (by UUID) not to be taken now."""
        self._resting = {worker: record for worker, record in self._resting.items() if now_s < record.until_s}
        return frozenset(self._resting)

    # --- over a restart ---

    def snapshot(self, now_s: float) -> FailuresSnapshot:
        """Return the state for a restarted coordinator, without its rows; times as seconds from now."""
        return FailuresSnapshot(now_s - self._reported.first_s if self._reported.count else 0.0)

    def deaths(self, now_s: float) -> list[DeathsSnapshot]:
        """Return the deaths for a restarted coordinator; times as seconds from now."""
        return [
            DeathsSnapshot(role, deaths.streak.count, now_s - deaths.streak.first_s, list(deaths.newest))
            for role, deaths in self._deaths.items()
        ]

    def rows(self, now_s: float) -> tuple[RestSnapshot, ...]:
        """All rows."""
        return tuple(self._row(worker, now_s) for worker in self._workers)

    def changes(self, now_s: float) -> Rows[RestSnapshot]:
        """Return the rows changed since the last call."""
        return self._changed.take(lambda worker: self._row(worker, now_s))

    def restore(
        self, snapshot: FailuresSnapshot, in_a_row: int, deaths: Sequence[DeathsSnapshot], now_s: float
    ) -> None:
        """Continue from a snapshot."""
        self._reported = Streak(in_a_row, now_s - snapshot.elapsed_s)
        self._workers = {m.worker: _Record(m.in_all, m.in_a_row, now_s + m.rest_s) for m in snapshot.workers}
        self._resting = dict(self._workers)
        self._unmended = {m.worker for m in snapshot.workers if m.in_a_row}
        for each in deaths:
            newest = deque(each.newest, maxlen=FAILURES_IN_A_ROW)
            self._deaths[each.role] = _Deaths(Streak(each.in_a_row, now_s - each.elapsed_s), newest)
        self.none = False

    def _forget(self, worker: str) -> None:
        del self._workers[worker]
        self._resting.pop(worker, None)
        self._unmended.discard(worker)
        self._changed.drop(worker)

    def _row(self, worker: str, now_s: float) -> RestSnapshot:
        record = self._workers[worker]
        return RestSnapshot(worker, record.in_all, record.in_a_row, max(0.0, record.until_s - now_s))


def _is_good(lease: Lease) -> bool:
    """True if the lease proves the role, so earlier deaths are forgotten."""
    return lease.worked_s - lease.ready_s >= GOOD_LEASE_S


def ordinal(count: int) -> str:
    """Return 1st, 2nd, 3rd, 4th …"""
    teen = 10 < count % 100 < 14
    return f"{count}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(count % 10, 'th')}"
