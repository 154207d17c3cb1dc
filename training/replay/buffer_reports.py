"""What the logs show of the replay buffer."""

from __future__ import annotations

import math

from remuda.buffer.monitor import SampleStatistics, ThroughputStatistics
from remuda.logbook.training_reports import BufferSampleReport, BufferThroughputReport
from remuda.wire.messages import Counters


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
    statistics: ThroughputStatistics, counters: Counters, *, samples_per_insert: float | None, policy_lag: int
) -> BufferThroughputReport:
    """The table of rows that came and went."""
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
    )
