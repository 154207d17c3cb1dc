"""Priorities of sequences, and rescaled values, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from remuda.policy.algorithms.r2d2 import entry
from remuda.policy.algorithms.r2d2.learning import sequence_priorities
from remuda.policy.networks.tensors import scaled, unscaled


def test_priorities_mix_the_largest_and_the_mean() -> None:
    errors = torch.tensor([[1.0, -3.0, 2.0], [4.0, 9.0, 0.0], [5.0, 5.0, 5.0]])
    valid = torch.tensor([[True, True, True], [True, False, True], [False, False, False]])
    given = sequence_priorities(errors * valid, valid, eta=0.9)
    np.testing.assert_allclose(given, [0.9 * 3 + 0.1 * 2, 0.9 * 4 + 0.1 * 2, 0.0], rtol=1e-6)


@pytest.mark.parametrize(("value", "expected"), [(0.0, 0.0), (3.0, 1.003), (-3.0, -1.003), (99.0, 9.099), (8.0, 2.008)])
def test_rescaled_values_by_hand(value: float, expected: float) -> None:
    """sign(x)(sqrt(|x| + 1) - 1) + 0.001 x."""
    assert scaled(torch.tensor(value)).item() == pytest.approx(expected, rel=1e-6)
    assert math.isclose(unscaled(torch.tensor(expected, dtype=torch.float64)).item(), value, rel_tol=1e-6)


def test_the_acting_side_has_the_same_inverse_without_torch() -> None:
    numbers = np.linspace(-300.0, 300.0, 1001).astype(np.float32)
    np.testing.assert_allclose(entry.unscaled(numbers), unscaled(torch.from_numpy(numbers).double()), rtol=1e-5)
