"""Correlated noise is standard normal at every step and has the requested correlation."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from remuda.policy.acting.distributions import CorrelatedNoise


def test_two_draws_by_hand() -> None:
    noise, rng, same = CorrelatedNoise(0.6), np.random.default_rng(0), np.random.default_rng(0)
    first, second = noise.draw((2, 3), rng), noise.draw((2, 3), rng)
    fresh = [same.standard_normal((2, 3), np.float32) for _ in range(2)]
    np.testing.assert_array_equal(first, fresh[0])
    np.testing.assert_allclose(second, 0.6 * fresh[0] + 0.8 * fresh[1], rtol=1e-6)
    assert second.dtype == np.float32


def drawn(correlation: float, steps: int = 4_000) -> NDArray[np.float32]:
    noise, rng = CorrelatedNoise(correlation), np.random.default_rng(1)
    return np.stack([noise.draw((5,), rng) for _ in range(steps)])


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_the_distribution_of_each_draw_stays_standard_normal(correlation: float) -> None:
    path = drawn(correlation)
    # The mean of a process with correlation c has (1 + c) / (1 - c) times the variance of independent draws.
    deviation = np.sqrt((1 + correlation) / (1 - correlation) / path.size)
    assert abs(path.mean()) < 4 * deviation
    assert path.std() == pytest.approx(1.0, abs=4 * deviation)
    between = np.mean(path[1:] * path[:-1])
    assert between == pytest.approx(correlation, abs=4 * deviation)
    two_apart = np.mean(path[2:] * path[:-2])
    assert two_apart == pytest.approx(correlation**2, abs=4 * deviation)


def test_numbers_beside_each_other_are_independent() -> None:
    correlations = np.corrcoef(drawn(0.5), rowvar=False)
    assert np.abs(correlations - np.eye(5)).max() < 0.1


def test_without_correlation_the_draws_are_those_of_the_generator() -> None:
    rng = np.random.default_rng(1)
    expected = np.stack([rng.standard_normal(5, np.float32) for _ in range(30)])
    np.testing.assert_array_equal(drawn(0.0, steps=30), expected)


def test_another_number_of_environments_begins_a_new_process() -> None:
    noise, rng, same = CorrelatedNoise(0.9), np.random.default_rng(2), np.random.default_rng(2)
    noise.draw((4, 1), rng)
    same.standard_normal((4, 1), np.float32)
    np.testing.assert_array_equal(noise.draw((3, 1), rng), same.standard_normal((3, 1), np.float32))
