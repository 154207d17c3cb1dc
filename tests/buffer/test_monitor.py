"""The tables' numbers are those of exactly the rows drawn since the last table."""

from __future__ import annotations

import numpy as np

from remuda.buffer.index import ReplayIndex, SampledRows
from remuda.buffer.limiter import SamplesPerInsertLimiter
from remuda.buffer.monitor import BufferMonitor, SampleStatistics, ThroughputStatistics
from remuda.buffer.samplers import UniformSampler
from remuda.tests.buffer.chunks import meta_of


def index_of(first_row: int = 0, sampled_rows: int = 0) -> ReplayIndex:
    index = ReplayIndex(
        10,
        UniformSampler(10),
        limiter=SamplesPerInsertLimiter(None, 1),
        rng=np.random.default_rng(0),
        quota_bytes=10**9,
    )
    index.restore([], next_row=first_row, first_live_row=first_row)
    index.sampled_rows = sampled_rows
    return index


def drawn(uses: list[list[int]], priorities: list[list[float]], staleness: list[list[int]]) -> SampledRows:
    shape = np.shape(uses)
    return SampledRows(
        rows=np.zeros(shape, np.int64),
        weights=np.ones(shape, np.float32),
        uses=np.array(uses, np.int64),
        priorities=np.array(priorities, np.float64),
        staleness=np.array(staleness, np.int64),
    )


def plain(batches: int) -> SampledRows:
    ones = np.ones((batches, 4))
    return drawn(ones.astype(int).tolist(), ones.tolist(), ones.astype(int).tolist())


def test_statistics_cover_the_rows_since_the_last_table() -> None:
    monitor = BufferMonitor(index_of(), 3, 60.0, now_s=0.0)
    assert monitor.sampled(drawn([[1, 2]], [[0.5, 1.5]], [[10, 20]])) is None
    assert monitor.sampled(drawn([[3, 6], [2, 4]], [[0.25, 4.0], [2.0, 0.75]], [[0, 0], [30, 90]])) == SampleStatistics(
        batches=3,
        use_avg=3.0,
        use_max=6,
        priority_avg=1.5,
        priority_max=4.0,
        priority_min=0.25,
        staleness_avg=25.0,
        staleness_max=90,
    )
    second = monitor.sampled(drawn([[1]] * 3, [[0.5]] * 3, [[7]] * 3))
    assert second == SampleStatistics(6, 1.0, 1, 0.5, 0.5, 0.5, 7.0, 7)


def test_a_call_over_several_tables_is_followed_by_one_and_the_rhythm_stays() -> None:
    monitor = BufferMonitor(index_of(), 10, 60.0, now_s=0.0)
    due = [monitor.sampled(plain(16)) for _ in range(5)]
    assert [statistics and statistics.batches for statistics in due] == [16, 32, 48, 64, 80]
    monitor = BufferMonitor(index_of(), 100, 60.0, now_s=0.0)
    due = [monitor.sampled(plain(16)) for _ in range(20)]
    assert [statistics.batches for statistics in due if statistics] == [112, 208, 304]


def test_throughput_is_the_difference_to_the_last_table() -> None:
    index = index_of()
    monitor = BufferMonitor(index, 200, 60.0, now_s=1000.0)
    index.insert(meta_of(0, 8))
    index.insert(meta_of(1, 6))
    index.sample(2, 16, train_iter=0, beta=0.0)
    assert monitor.throughput(1059.9) is None
    assert monitor.throughput(1061.5) == ThroughputStatistics(
        period_s=61.5, pushed_in=14, sampled_out=32, removed=4, current_have=10
    )
    assert monitor.throughput(1100.0) is None
    index.quarantine(meta_of(1, 6).file)
    later = monitor.throughput(1121.5)
    assert later == ThroughputStatistics(60.0, pushed_in=0, sampled_out=0, removed=6, current_have=4)


def test_an_index_that_goes_on_from_a_journal_does_not_count_the_past() -> None:
    index = index_of(first_row=5000, sampled_rows=40_000)
    monitor = BufferMonitor(index, 200, 60.0, now_s=0.0)
    index.insert(meta_of(0, 8))
    statistics = monitor.throughput(60.0)
    assert statistics is not None
    assert (statistics.pushed_in, statistics.sampled_out) == (8, 0)
