"""Reports of the buffer since the last report: the numbers of its two tables."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.buffer.index import ReplayIndex, SampledRows


@dataclass(frozen=True)
class SampleStatistics:
    """Statistics of all rows drawn since the last such table."""

    batches: int
    """Batches drawn since the start."""
    use_avg: float
    """Number of draws of a drawn row, including the present draw."""
    use_max: int
    priority_avg: float
    """Priority from the learner, before exponent and offset; for rows new to the learner, the largest seen."""
    priority_max: float
    priority_min: float
    staleness_avg: float
    """Gradient updates since the policy that collected the row."""
    staleness_max: int


@dataclass(frozen=True)
class ThroughputStatistics:
    """Inserted and evicted rows since the last such table, `period_s` seconds ago."""

    period_s: float
    pushed_in: int
    sampled_out: int
    removed: int
    current_have: int


@dataclass
class _Tally:
    rows: int = 0
    uses: int = 0
    use_max: int = 0
    priorities: float = 0.0
    priority_max: float = 0.0
    priority_min: float = float("inf")
    staleness: int = 0
    staleness_max: int = 0


class BufferMonitor:
    """Adds up events and returns a table's numbers when due. Writes no logs and reads no clock."""

    def __init__(
        self, index: ReplayIndex, interval_samples: int, interval_s: float, *, now_s: float, batches: int = 0
    ) -> None:
        """`batches` is the number of batches that a resumed run has drawn before."""
        if interval_samples < 1 or not interval_s > 0:
            raise ValueError(f"intervals must be positive, not {interval_samples} batches and {interval_s} s")
        self._index = index
        self._interval_samples = interval_samples
        self._interval_s = interval_s
        self._batches = batches
        self._tally = _Tally()
        self._period_start_s = now_s
        self._seen = self._totals()

    def sampled(self, sampled: SampledRows) -> SampleStatistics | None:
        """Count the rows of a call; return statistics when a multiple of `interval_samples` batches is reached.

        A call across several multiples gives one table.
        """
        if not sampled.rows.size:
            return None
        self._add(sampled)
        before = self._batches
        self._batches += len(sampled.rows)
        if before // self._interval_samples == self._batches // self._interval_samples:
            return None
        return self.rest()

    def rest(self) -> SampleStatistics | None:
        """Return statistics since the last table, however short; None without draws."""
        tally, self._tally = self._tally, _Tally()
        if not tally.rows:
            return None
        return SampleStatistics(
            batches=self._batches,
            use_avg=tally.uses / tally.rows,
            use_max=tally.use_max,
            priority_avg=tally.priorities / tally.rows,
            priority_max=tally.priority_max,
            priority_min=tally.priority_min,
            staleness_avg=tally.staleness / tally.rows,
            staleness_max=tally.staleness_max,
        )

    def throughput(self, now_s: float, *, last: bool = False) -> ThroughputStatistics | None:
        """Return the throughput of the period after `interval_s` seconds, else None.

        `last` returns the throughput after any time, so the tables of a run cover all rows.
        """
        period_s = now_s - self._period_start_s
        if period_s < self._interval_s and not (last and period_s > 0):
            return None
        totals = self._totals()
        pushed_in, sampled_out, removed = (now - then for now, then in zip(totals, self._seen, strict=True))
        self._period_start_s, self._seen = now_s, totals
        return ThroughputStatistics(period_s, pushed_in, sampled_out, removed, self._index.rows)

    def _totals(self) -> tuple[int, int, int]:
        return self._index.next_row, self._index.sampled_rows, self._index.removed_rows

    def _add(self, sampled: SampledRows) -> None:
        tally = self._tally
        tally.rows += sampled.rows.size
        tally.uses += int(sampled.uses.sum())
        tally.use_max = max(tally.use_max, int(sampled.uses.max()))
        tally.priorities += float(sampled.priorities.sum())
        tally.priority_max = max(tally.priority_max, float(sampled.priorities.max()))
        tally.priority_min = min(tally.priority_min, float(sampled.priorities.min()))
        tally.staleness += int(sampled.staleness.sum())
        tally.staleness_max = max(tally.staleness_max, int(sampled.staleness.max()))
