"""Values and rewards as distributions: by hand, and inverted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remuda.policy.algorithms.muzero.networks import Support
from remuda.policy.networks.tensors import scaled, unscaled
from remuda.tests.policy.algorithms.muzero.cases import two_hot

NUMBERS = st.floats(-60_000.0, 60_000.0)


def doubles(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0.0, 0.0),
        (3.0, 2.0 - 1.0 + 0.003),  # sqrt(3 + 1) - 1 + 0.001 * 3
        (-3.0, -1.003),
        (99.0, 9.0 + 0.099),
        (-8.0, -2.008),
    ],
)
def test_scale_by_hand(number: float, expected: float) -> None:
    assert float(scaled(doubles(number))) == pytest.approx(expected, abs=1e-12)


@given(NUMBERS)
def test_the_inverse_is_exact(number: float) -> None:
    assert float(unscaled(scaled(doubles(number)))) == pytest.approx(number, rel=1e-12, abs=1e-12)


def test_two_hot_by_hand() -> None:
    # h(3) = 1.003 lies between the atoms 1 and 2 of -2 … 2, which have the indices 3 and 4.
    distribution = two_hot(Support(2), doubles(3.0, 0.0, 1e6, -1e6))
    expected = np.array([[0, 0, 0, 0.997, 0.003], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1], [1, 0, 0, 0, 0]])
    np.testing.assert_allclose(distribution.numpy(), expected, atol=1e-12)


@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_a_two_hot_distribution_means_its_number(numbers: list[float]) -> None:
    support = Support(310)
    distribution = two_hot(support, doubles(*numbers))
    np.testing.assert_allclose(distribution.sum(1).numpy(), 1.0, rtol=1e-12)
    assert int((distribution > 0).sum(1).max()) <= 2
    np.testing.assert_allclose(support.mean(distribution).numpy(), np.array(numbers), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(  # and by its logarithm, where that is no infinity
        support.expectation((distribution + 1e-300).log()).numpy(), np.array(numbers), rtol=1e-9, atol=1e-9
    )


def test_beyond_the_support_is_its_end() -> None:
    support = Support(2)
    most = float(unscaled(doubles(2.0)))
    means = support.mean(two_hot(support, doubles(1e9, -1e9)))
    np.testing.assert_allclose(means.numpy(), [most, -most])


def test_cross_entropy_is_that_of_the_two_hot_distribution() -> None:
    support, rng = Support(5), np.random.default_rng(0)
    logits, numbers = torch.from_numpy(rng.normal(size=(40, 11))), torch.from_numpy(rng.normal(size=40) * 30)
    expected = -(two_hot(support, numbers) * logits.log_softmax(1)).sum(1)
    torch.testing.assert_close(support.cross_entropy(logits, numbers), expected)
