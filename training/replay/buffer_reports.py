"""Reports of the replay buffer for the logs."""

from __future__ import annotations

import math

from remuda.buffer.index import ReplayIndex, SampledRows
from remuda.buffer.monitor import BufferMonitor, SampleStatistics, ThroughputStatistics
from remuda.config.workers import LogConfig
from remuda.logbook.reports import BufferSampleReport, BufferThroughputReport, Report
from remuda.policy.row_plan import RowPlan
from remuda.wire.messages import Counters, LedgerCounts


class BufferReporter:
    """Makes the tables of the buffer's log."""

    def __init__(self, index: ReplayIndex, plan: RowPlan, log: LogConfig, now_s: float) -> None:
        self._index = index
        self._plan = plan
        self._log = log
        self._reports: list[Report] = []
        self.start(now_s)

    def start(self, now_s: float) -> None:
        """Begin a new period, without earlier draws of the index."""
        drawn = self._index.sampled_rows // self._plan.rows_per_update
        self._monitor = BufferMonitor(
            self._index, self._log.buffer_interval_samples, self._log.buffer_interval_s, now_s=now_s, batches=drawn
        )

    def sampled(self, sampled: SampledRows, *, train_iter: int, env_step: int) -> None:
        """Count drawn batches."""
        statistics = self._monitor.sampled(sampled)
        if statistics is not None:
            self._reports.append(sample_report(statistics, train_iter=train_iter, env_step=env_step))

    def due(self, now_s: float, *, last: bool) -> ThroughputStatistics | None:
        """Return the statistics of a finished period, or of an unfinished one with `last`."""
        return self._monitor.throughput(now_s, last=last)

    def period(
        self,
        statistics: ThroughputStatistics,
        counters: Counters,
        *,
        samples_per_insert: float | None,
        policy_lag: int,
        ledger: LedgerCounts,
    ) -> None:
        """Add the tables of a period.

        On-policy batches are large and few, so the table of draws comes with each period.
        """
        drawn = self._monitor.rest() if self._plan.on_policy else None
        if drawn is not None:
            self._reports.append(sample_report(drawn, train_iter=counters.train_iter, env_step=counters.env_step))
        self._reports.append(
            throughput_report(
                statistics,
                counters,
                samples_per_insert=samples_per_insert,
                policy_lag=policy_lag,
                ledger=ledger,
                num_transitions=statistics.current_have * self._plan.slots_per_row,
                payload_bytes=self._index.payload_bytes,
            )
        )

    def take(self) -> list[Report]:
        """The tables since the last call."""
        reports, self._reports = self._reports, []
        return reports


def sample_report(statistics: SampleStatistics, *, train_iter: int, env_step: int) -> BufferSampleReport:
    """The table of sampled rows."""
    return BufferSampleReport(
        train_iter=train_iter,
        env_step=env_step,
        sample_count=statistics.batches,
        use_avg=statistics.use_avg,
        use_max=statistics.use_max,
        priority_avg=statistics.priority_avg,
        priority_max=statistics.priority_max,
        priority_min=statistics.priority_min,
        staleness_avg=statistics.staleness_avg,
        staleness_max=statistics.staleness_max,
    )


def throughput_report(
    statistics: ThroughputStatistics,
    counters: Counters,
    *,
    samples_per_insert: float | None,
    policy_lag: int,
    ledger: LedgerCounts,
    num_transitions: int,
    payload_bytes: int,
) -> BufferThroughputReport:
    """Return the table of inserted, sampled and removed rows."""
    return BufferThroughputReport(
        train_iter=counters.train_iter,
        env_step=counters.env_step,
        wall_s=counters.wall_s,
        past_s=statistics.period_s,
        pushed_in=statistics.pushed_in,
        sampled_out=statistics.sampled_out,
        removed=statistics.removed,
        current_have=statistics.current_have,
        samples_per_insert=math.nan if samples_per_insert is None else samples_per_insert,
        policy_lag=policy_lag,
        ledger=ledger,
        num_transitions=num_transitions,
        num_collected_episodes=counters.episode,
        payload_bytes=payload_bytes,
    )
