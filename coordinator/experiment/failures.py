"""Failures of an experiment's workers: which workers rest after one, and when the experiment fails."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.training.changed_rows import ChangedRows
from remuda.training.snapshot import FailuresSnapshot, RestSnapshot, Rows

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

    def worked(self, worker: str) -> None:
        """This worker has done some work: its next failure is the first in a row."""
        if worker in self._workers and self._workers[worker].in_a_row:
            self._workers[worker].in_a_row = 0
            self._changed.put.add(worker)

    def moved(self) -> None:
        """The experiment has made progress: something was counted or learned."""
        self._streak.count = 0

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
