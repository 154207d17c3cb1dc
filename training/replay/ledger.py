"""Counted chunks, which give the value of every counter."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from remuda.training.run_snapshot import ChangedRows, Rows
from remuda.training.snapshot import CountedSnapshot, LedgerSnapshot
from remuda.wire.messages import ChunkId, ChunkMeta, Counters, LedgerCounts

REFUSALS_KEPT = 8
"""Refused chunks remembered for a lease, so that repetitions count once: a collector repeats at most two."""


class TooManyGapsError(ValueError):
    """Noting the number would leave more gaps in the series than are kept."""


class SequenceSet:
    """A set of numbers expected in order, from 0: the highest number, and the gaps below.

    Memory is O(gaps), however long the series and each gap; a number in order costs O(1) time.
    """

    def __init__(self, *, max_gaps: int = 4_096) -> None:
        self._max_gaps = max_gaps
        self.high_water = -1
        """The highest number seen; -1 before any."""
        self._gaps: list[range] = []  # ascending, never empty ones, never touching

    @property
    def missing(self) -> tuple[range, ...]:
        """The gaps: ranges of missing numbers below the highest, ascending."""
        return tuple(self._gaps)

    def __contains__(self, number: int) -> bool:
        return 0 <= number <= self.high_water and self._gap_of(number) is None

    def add(self, number: int) -> bool:
        """Add `number`; False if known. Raises TooManyGapsError beyond `max_gaps` gaps, without a change."""
        if number == self.high_water + 1:
            self.high_water = number
            return True
        if number > self.high_water:
            self._replace(len(self._gaps), len(self._gaps), range(self.high_water + 1, number))
            self.high_water = number
            return True
        position = self._gap_of(number)
        if position is None:
            return False
        gap = self._gaps[position]
        self._replace(position, position + 1, range(gap.start, number), range(number + 1, gap.stop))
        return True

    @classmethod
    def of(cls, high_water: int, missing: Iterable[range]) -> SequenceSet:
        """The set with these values of `high_water` and `missing`."""
        restored = cls()
        restored.high_water, restored._gaps = high_water, list(missing)
        return restored

    def _gap_of(self, number: int) -> int | None:
        position = bisect_left(self._gaps, number + 1, key=lambda gap: gap.stop)
        return position if position < len(self._gaps) and number in self._gaps[position] else None

    def _replace(self, start: int, stop: int, *gaps: range) -> None:
        new = [gap for gap in gaps if gap]
        total = len(self._gaps) - (stop - start) + len(new)
        if total > self._max_gaps:
            raise TooManyGapsError(
                f"{total} gaps below {self.high_water} would have to be remembered; the most is {self._max_gaps}"
            )
        self._gaps[start:stop] = new


class UnknownLeaseError(ValueError):
    """A chunk came under an unknown or forgotten lease, or from a worker that did not hold the lease."""


@dataclass
class _Counted:
    """The chunks of a lease."""

    worker: str
    incarnation: int
    first: int
    """Smaller numbers belong to earlier leases of this incarnation of the worker. -1: unknown until a chunk comes."""
    seen: SequenceSet = field(default_factory=SequenceSet)
    refused: list[int] = field(default_factory=list[int])
    """The newest refused numbers, at most REFUSALS_KEPT."""


class Ledger:
    """Accepted chunks of an experiment. Counters are sums over accepted chunks; counters of a resumed run continue at
    its checkpoint.

    For each lease it keeps the known sequence numbers, as a highest number and gaps. An incarnation of a worker numbers
    all its chunks in one series over all runs, so chunks of other runs lie between two leases of a run. Chunks under
    a forgotten lease are not counted. Does no I/O and keeps no payload.
    """

    def __init__(self, start: Counters | None = None) -> None:
        self._leases: dict[int, _Counted] = {}
        self._of_worker: dict[tuple[str, int], list[int]] = {}
        """Known leases by worker and incarnation; the newest last."""
        self._has_forgotten = False
        self._changed = ChangedRows[int]()
        self.env_step = 0 if start is None else start.env_step
        """Environment steps in accepted chunks."""
        self.rows = 0
        """Training rows in the chunks accepted in this incarnation of the run."""
        self.episode = 0 if start is None else start.episode
        """Episodes that ended in accepted chunks."""
        self.chunks = 0
        """Chunks accepted in this incarnation of the run."""
        self.payload_bytes = 0
        """Size of the accepted chunks."""
        self._repeated = self._refused = self._refused_env_steps = self._lost_collectors = 0

    # --- leases ---

    def open(self, lease: int, worker: str, incarnation: int) -> None:
        """Open a lease for a worker's chunks, numbered above the chunks of its earlier leases."""
        known = self._of_worker.setdefault((worker, incarnation), [])
        first = -1 if self._has_forgotten else 0
        if known:
            former = self._leases[known[-1]]
            first = -1 if former.first < 0 else max(former.first, former.seen.high_water + 1)
        known.append(lease)
        self._leases[lease] = _Counted(worker, incarnation, first)
        self._changed.put.add(lease)

    def forget(self, lease: int) -> None:
        """Forget a lease, which brings no further chunk."""
        counted = self._leases.pop(lease, None)
        if counted is None:
            return
        self._changed.drop(lease)
        generation = counted.worker, counted.incarnation
        known = self._of_worker[generation]
        known.remove(lease)
        if not known:
            del self._of_worker[generation]
        self._has_forgotten = True
        for later in known:
            if 0 <= self._leases[later].first <= counted.seen.high_water:
                self._leases[later].first = counted.seen.high_water + 1
                self._changed.put.add(later)

    # --- chunks ---

    def accept(self, meta: ChunkMeta, lease: int, check: Callable[[ChunkMeta], None] = lambda meta: None) -> bool:
        """Count a chunk. Returns False for a repeated chunk, of which only the repetition is counted. `check` is called
        for a new chunk and may raise to refuse the chunk. Raises UnknownLeaseError, and TooManyGapsError."""
        counted, sequence = self._find(meta.chunk, lease), meta.chunk.sequence
        if self._is_counted(meta.chunk):
            self._repeated += 1
            return False
        try:
            check(meta)
            counted.seen.add(sequence)
        except ValueError:
            self._refuse(counted, meta, lease)
            raise
        if counted.first < 0:
            counted.first = sequence
        self._changed.put.add(lease)
        self.add(meta)
        return True

    def lost_collector(self) -> None:
        """Count a collector that has ended without handing in its work."""
        self._lost_collectors += 1

    def _refuse(self, counted: _Counted, meta: ChunkMeta, lease: int) -> None:
        if meta.chunk.sequence not in counted.refused:
            counted.refused = [*counted.refused, meta.chunk.sequence][-REFUSALS_KEPT:]
            self._changed.put.add(lease)
            self._refused += 1
            self._refused_env_steps += meta.env_steps

    def add(self, meta: ChunkMeta) -> None:
        """Count a chunk without a lease that is known to be uncounted."""
        self.env_step += meta.env_steps
        self.rows += meta.rows
        self.episode += len(meta.episode_returns)
        self.chunks += 1
        self.payload_bytes += meta.payload_bytes

    def lacks(self, chunk: ChunkId) -> bool:
        """True if a payload of this number is known to be uncounted: its worker held a known lease, and no lease has
        the number. Payloads of possibly forgotten leases are not counted any more."""
        return self.lease_of_missing(chunk) is not None

    def lease_of_missing(self, chunk: ChunkId) -> int | None:
        """Return the lease of a chunk named by `lacks`; None if the chunk is not known to be missing."""
        if self._is_counted(chunk):
            return None
        leases = self._of_worker.get((chunk.worker, chunk.incarnation), ())
        return next((lease for lease in reversed(leases) if 0 <= self._leases[lease].first <= chunk.sequence), None)

    def _is_counted(self, chunk: ChunkId) -> bool:
        """True if a known lease has the chunk. A worker's numbers rise from lease to lease."""
        for lease in reversed(self._of_worker.get((chunk.worker, chunk.incarnation), ())):
            seen = self._leases[lease].seen
            if 0 <= seen.high_water < chunk.sequence:
                return False
            if chunk.sequence in seen:
                return True
        return False

    def _find(self, chunk: ChunkId, lease: int) -> _Counted:
        counted = self._leases.get(lease)
        if counted is None:
            raise UnknownLeaseError(f"lease {lease} is not known any more")
        if counted.worker != chunk.worker or counted.incarnation != chunk.incarnation:
            raise UnknownLeaseError(f"lease {lease} is that of {counted.worker}, incarnation {counted.incarnation}")
        return counted

    # --- over a restart ---

    def snapshot(self) -> LedgerSnapshot:
        """Return the state for a restart, without its rows."""
        return LedgerSnapshot(
            self.env_step,
            self.rows,
            self.episode,
            self.chunks,
            self._has_forgotten,
            repeated=self._repeated,
            refused=self._refused,
            refused_env_steps=self._refused_env_steps,
            lost_collectors=self._lost_collectors,
            payload_bytes=self.payload_bytes,
        )

    def rows_of_leases(self) -> tuple[CountedSnapshot, ...]:
        """All rows."""
        return tuple(self._row(lease) for lease in self._leases)

    def changes(self) -> Rows[CountedSnapshot]:
        """Return the rows changed since the last call."""
        return self._changed.take(self._row)

    def restore(self, snapshot: LedgerSnapshot) -> None:
        """Continue a new ledger from a snapshot."""
        self.env_step, self.rows = snapshot.env_steps, snapshot.rows
        self.episode, self.chunks = snapshot.episodes, snapshot.chunks
        self._has_forgotten, self.payload_bytes = snapshot.has_forgotten, snapshot.payload_bytes
        self._repeated, self._lost_collectors = snapshot.repeated, snapshot.lost_collectors
        self._refused, self._refused_env_steps = snapshot.refused, snapshot.refused_env_steps
        for m in sorted(snapshot.counted, key=lambda row: row.lease):
            seen = SequenceSet.of(m.high_water, [range(*gap) for gap in m.gaps])
            self._leases[m.lease] = _Counted(m.worker, m.incarnation, m.first, seen, [*m.refused])
            self._of_worker.setdefault((m.worker, m.incarnation), []).append(m.lease)

    def _row(self, lease: int) -> CountedSnapshot:
        counted = self._leases[lease]
        gaps = [(gap.start, gap.stop) for gap in counted.seen.missing]
        return CountedSnapshot(
            lease, counted.worker, counted.incarnation, counted.first, counted.seen.high_water, gaps, counted.refused
        )

    # --- counters ---

    @property
    def counts(self) -> LedgerCounts:
        """Return numbers of accepted, repeated and lost chunks."""
        return LedgerCounts(self.chunks, self._repeated, self._refused, self._refused_env_steps, self._lost_collectors)
