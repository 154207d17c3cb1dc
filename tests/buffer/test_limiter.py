"""The limiter holds both sides to the setting, and never both at once."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from remuda.buffer.limiter import SamplesPerInsertLimiter
from remuda.buffer.samplers import UNLIMITED_ROWS

ratios = st.floats(0.01, 200)


def test_hand_calculated_example() -> None:
    limiter = SamplesPerInsertLimiter(4.0, 100, request_rows=64, chunk_rows=10)
    assert limiter.band == 64 + 4 * 10
    assert limiter.sampleable_rows(99, 0) == 0
    assert limiter.sampleable_rows(100, 0) == 104
    assert limiter.sampleable_rows(150, 100) == 4 * 50 + 104 - 100
    assert limiter.insertable_rows(0, 0) == 100 + 104 // 4
    assert limiter.insertable_rows(150, 100) == 100 + (100 + 104) // 4 - 150
    assert limiter.sampleable_rows(100, 104) == 0
    assert limiter.insertable_rows(126, 0) == 0
    assert limiter.achieved(150, 100) == 2.0


@settings(deadline=None)
@given(
    ratio=ratios,
    min_rows=st.integers(1, 2000),
    batch=st.integers(1, 512),
    prefetch=st.integers(1, 32),
    chunk=st.integers(1, 2000),
    collectors=st.integers(1, 8),
    eager=st.sampled_from(["collectors", "learner", "both"]),
)
def test_any_sizes_reach_the_setting_without_a_deadlock(
    ratio: float, min_rows: int, batch: int, prefetch: int, chunk: int, collectors: int, eager: str
) -> None:
    request_rows, chunk_rows = batch * prefetch, chunk * collectors
    assume(
        1 / 100 < ratio * chunk_rows / request_rows < 100
    )  # else thousands of turns of the one per turn of the other
    limiter = SamplesPerInsertLimiter(ratio, min_rows, request_rows=request_rows, chunk_rows=chunk_rows)
    converged = min_rows + 20 * limiter.band / ratio + chunk_rows
    inserted = sampled = turns = 0
    while inserted < converged:
        may_insert = limiter.insertable_rows(inserted, sampled) >= chunk_rows
        may_sample = limiter.sampleable_rows(inserted, sampled) >= request_rows
        assert may_insert or may_sample, "both sides wait for each other"
        turns += 1
        collectors_turn = eager == "collectors" or (eager == "both" and turns % 2 == 0)
        if may_insert and (collectors_turn or not may_sample):
            inserted += chunk_rows
        else:
            sampled += request_rows
    assert limiter.achieved(inserted, sampled) == pytest.approx(ratio, rel=0.05)


@pytest.mark.parametrize("samples_per_insert", [1e-300, 1e-6, 1e6, 1e300])
@pytest.mark.parametrize("sampled", [0, 2**53])
def test_no_ratio_overflows(samples_per_insert: float, sampled: int) -> None:
    limiter = SamplesPerInsertLimiter(samples_per_insert, 1, request_rows=2**30, chunk_rows=2**30)
    for inserted in (0, 1, 2**53):
        assert 0 <= limiter.insertable_rows(inserted, sampled) <= UNLIMITED_ROWS
        assert 0 <= limiter.sampleable_rows(inserted, sampled) <= UNLIMITED_ROWS
