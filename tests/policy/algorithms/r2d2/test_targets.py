"""Returns inside sequences, priorities of sequences, and rescaled values, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from remuda.policy.algorithms.r2d2 import acting
from remuda.policy.algorithms.r2d2.targets import n_step_returns, sequence_priorities
from remuda.policy.networks.rescaling import scaled, unscaled

NO = [False] * 6


def returns(reward: list[float], terminated: list[bool], done: list[bool], n_step: int = 3) -> list[list[float]]:
    columns = (np.array([reward], np.float32), np.array([terminated]), np.array([done]))
    return [
        np.round(column[0].astype(float), 6).tolist()
        for column in n_step_returns(*columns, n_step=n_step, discount=0.5)
    ]


def test_three_steps_of_an_episode_that_goes_on() -> None:
    """Of 6 steps the last two are only looked ahead to."""
    reward = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    assert returns(reward, NO, NO) == [[3.0, 6.0, 12.0, 24.0], [3, 3, 3, 3], [0.125] * 4]


def test_nothing_is_looked_for_behind_the_end_of_an_episode() -> None:
    """Step 2 is the last of its episode, step 3 is the reset, step 4 begins the next."""
    reward, done = [1.0, 2.0, 4.0, 0.0, 16.0, 32.0], [False, False, True, False, False, False]
    rewards, steps, discounts = returns(reward, done, done)
    assert rewards[:3] == [3.0, 4.0, 4.0]
    assert steps[:3] == [3, 2, 1]
    assert discounts[:3] == [0.0, 0.0, 0.0]  # it terminated
    rewards, steps, discounts = returns(reward, NO, done)
    assert rewards[:3] == [3.0, 4.0, 4.0]
    assert steps[:3] == [3, 2, 1]
    assert discounts[:3] == [
        0.125,
        0.25,
        0.5,
    ]  # it was truncated: the value of its last observation stands for the rest


def test_one_step_looks_at_nothing_but_itself() -> None:
    done = [False, True, False, False, True, False]
    assert returns([1.0] * 6, NO, done, n_step=1) == [[1.0] * 6, [1] * 6, [0.5] * 6]


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
    np.testing.assert_allclose(acting.unscaled(numbers), unscaled(torch.from_numpy(numbers).double()), rtol=1e-5)
