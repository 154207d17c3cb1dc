"""Reports of the replay buffer for the logs."""

from __future__ import annotations

import math

from remuda.buffer.monitor import SampleStatistics, ThroughputStatistics
from remuda.logbook.reports import BufferSampleReport, BufferThroughputReport
from remuda.wire.messages import Counters, LedgerCounts


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
