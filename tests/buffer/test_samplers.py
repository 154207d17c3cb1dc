"""The samplers draw what theory says."""

from __future__ import annotations

import math

import numpy as np
import psutil
import pytest

from remuda.buffer.samplers import (
    FifoSampler,
    PrioritizedSampler,
    Sampler,
    SlotTable,
    UniformSampler,
    importance_beta,
    importance_weights,
)


def chi_square_p(statistic: float, degrees: int) -> float:
    """Upper tail of the chi-square distribution, by Wilson and Hilferty's cube root (good to 3 digits here)."""
    z = ((statistic / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / math.sqrt(2 / (9 * degrees))
    return math.erfc(z / math.sqrt(2)) / 2


def frequencies(sampler: Sampler, draws: int, capacity: int, batch_size: int = 250) -> np.ndarray:
    rng = np.random.default_rng(2024)
    slots, _ = sampler.sample(draws // batch_size, batch_size, rng)
    return np.bincount(slots.ravel(), minlength=capacity)


def test_uniform_passes_a_chi_square_test_with_holes_in_the_slots() -> None:
    sampler = UniformSampler(400)
    sampler.on_insert(np.arange(400))
    sampler.on_evict(np.arange(50, 150))
    sampler.on_evict(np.array([399, 0]))
    sampler.on_insert(np.arange(60, 62))
    counts = frequencies(sampler, 300_000, 400)
    live = np.array([*range(1, 50), 60, 61, *range(150, 399)])
    dead = np.setdiff1d(np.arange(400), live)
    assert counts[dead].sum() == 0
    expected = 300_000 / len(live)
    assert chi_square_p(float(((counts[live] - expected) ** 2 / expected).sum()), len(live) - 1) > 0.001


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_prioritized_frequencies_are_within_one_percent_of_theory(alpha: float) -> None:
    priorities = np.array([0.5, 1.0, 2.0, 4.0, 0.25, 3.0, 1.5, 0.75])
    sampler = PrioritizedSampler(3000, alpha, epsilon=0.01)
    slots = np.array([3, 17, 256, 1024, 1025, 2047, 2048, 2999])
    sampler.on_insert(slots)
    sampler.update(slots, priorities * np.array([1, -1, 1, -1, 1, -1, 1, -1]))
    theory = (priorities + 0.01) ** alpha
    theory /= theory.sum()
    drawn, probabilities = sampler.sample(4_000, 500, np.random.default_rng(7))
    counts = np.bincount(drawn.ravel(), minlength=3000)
    assert counts.sum() == counts[slots].sum()
    np.testing.assert_allclose(counts[slots] / counts.sum(), theory, rtol=0.01)
    np.testing.assert_allclose(probabilities, theory[np.searchsorted(slots, drawn)], rtol=1e-12)


def test_new_rows_get_the_largest_priority_seen() -> None:
    sampler, priorities = PrioritizedSampler(10, 1.0), np.zeros(10)
    sampler.keep_priorities_in(priorities)
    sampler.on_insert(np.array([0, 1]))
    assert priorities[:2].tolist() == [1.0, 1.0]
    sampler.update(np.array([0]), np.array([-7.5]))
    sampler.update(np.array([0]), np.array([0.25]))
    sampler.on_insert(np.array([2]))
    assert priorities[:3].tolist() == [0.25, 1.0, 7.5]


def test_priorities_that_are_not_finite_are_refused() -> None:
    sampler, priorities = PrioritizedSampler(4, 0.5), np.zeros(4)
    sampler.keep_priorities_in(priorities)
    sampler.on_insert(np.arange(4))
    sampler.update(np.arange(4), np.array([np.nan, 2.0, np.inf, -np.inf], np.float32))
    assert priorities.tolist() == [1.0, 2.0, 1.0, 1.0]
    sampler.update(np.array([1]), np.array([np.nan]))
    assert priorities.tolist() == [1.0, 2.0, 1.0, 1.0]
    assert np.isfinite(sampler.sample(1, 100, np.random.default_rng(0))[1]).all()


def test_fifo_hands_out_each_row_once_in_order() -> None:
    sampler, rng = FifoSampler(), np.random.default_rng(0)
    sampler.on_insert(np.array([4, 5, 6]))
    sampler.on_insert(np.array([7, 0, 1]))
    assert sampler.sample(2, 2, rng)[0].tolist() == [[4, 5], [6, 7]]
    assert sampler.drawable_rows == 2
    with pytest.raises(ValueError, match="3 rows were asked for and 2 are left"):
        sampler.sample(1, 3, rng)
    slots, probabilities = sampler.sample(1, 2, rng)
    assert slots.tolist() == [[0, 1]]
    assert importance_weights(probabilities, 1.0).tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("sampler", [UniformSampler(4), FifoSampler()])
def test_where_priorities_do_not_count_they_are_one(sampler: Sampler) -> None:
    priorities = np.zeros(4)
    sampler.keep_priorities_in(priorities)
    sampler.on_insert(np.arange(4))
    sampler.update(np.arange(4), np.array([1.0, 5.0, np.nan, 0.0]))
    assert priorities.tolist() == [1.0, 1.0, 1.0, 1.0]


def test_beta_rises_to_one_over_updates() -> None:
    found = [importance_beta(0.4, 100, train_iter) for train_iter in (0, 50, 100, 10**9)]
    assert found == [0.4, pytest.approx(0.7), 1.0, 1.0]


def test_importance_weights_equal_the_formula() -> None:
    probabilities = np.array([[0.1, 0.2, 0.4], [0.05, 0.05, 0.01]])
    weights = importance_weights(probabilities, 0.4)
    by_hand = [[(10 * p) ** -0.4 for p in batch] for batch in probabilities.tolist()]
    expected = [[w / max(batch) for w in batch] for batch in by_hand]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    assert weights.dtype == np.float32
    assert weights.max(axis=1).tolist() == [1.0, 1.0]
    assert (importance_weights(probabilities, 0.0) == 1).all()


def test_a_large_table_takes_no_memory_before_it_is_used() -> None:
    before = psutil.Process().memory_info().rss
    tables = SlotTable(10_000_000), UniformSampler(10_000_000), PrioritizedSampler(10_000_000, 0.6)
    for sampler in tables[1:]:
        sampler.keep_priorities_in(tables[0].priority)
    assert psutil.Process().memory_info().rss - before < 50_000_000, "and not hundreds of megabytes"
