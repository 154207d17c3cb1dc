"""Windows of n steps and the returns of segments, against the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from remuda.policy.returns import Outcome, Returns, n_step_returns, n_step_windows

NO = [False] * 6


def test_windows_by_hand() -> None:
    reward = np.array([[1.0], [10.0], [100.0], [0.0], [5.0], [7.0]])
    done = np.array([[False], [False], [True], [False], [False], [False]])
    windows = n_step_windows(reward, done, n_step=3, discount=0.5)
    assert windows.reward[:3, 0].tolist() == [1 + 5 + 25, 10 + 50, 100]
    assert windows.reward[4:, 0].tolist() == [5 + 3.5, 7]
    assert windows.length[:, 0].tolist() == [3, 2, 1, 3, 2, 1]
    assert windows.complete[:, 0].tolist() == [True, True, True, True, False, False]


@given(steps=st.integers(1, 4), n_step=st.integers(1, 9))
def test_one_step_windows_and_short_stretches(steps: int, n_step: int) -> None:
    windows = n_step_windows(np.ones((steps, 2)), np.zeros((steps, 2), np.bool_), n_step=n_step, discount=1.0)
    expected = [min(n_step, steps - t) for t in range(steps)]
    assert windows.length[:, 0].tolist() == expected
    assert windows.reward[:, 1].tolist() == expected
    assert windows.complete[:, 0].tolist() == [length == n_step for length in expected]


def returns(reward: list[float], terminated: list[bool], done: list[bool], n_step: int = 3) -> Returns:
    """Returns of one environment, with a reset after each episode."""
    valid = [not before for before in [False, *done[:-1]]]
    columns = (np.array([reward], np.float32), *(np.array([flags]) for flags in (terminated, done, valid)))
    return n_step_returns(Outcome(*columns), n_step=n_step, discount=0.5)


def test_the_last_steps_of_a_segment_look_ahead_to_its_end() -> None:
    got = returns([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], NO, NO)
    assert got.reward.tolist() == [[3.0, 6.0, 12.0, 24.0, 32.0, 32.0]]
    assert got.steps.tolist() == [[3, 3, 3, 3, 2, 1]]
    assert got.discount.tolist() == [[0.125, 0.125, 0.125, 0.125, 0.25, 0.5]]


def test_nothing_is_looked_for_behind_the_end_of_an_episode() -> None:
    """Step 2 is the last of its episode, step 3 is the reset, step 4 begins the next."""
    reward, done = [1.0, 2.0, 4.0, 0.0, 16.0, 32.0], [False, False, True, False, False, False]
    for terminated, discounts in ((done, [0.0, 0.0, 0.0]), (NO, [0.125, 0.25, 0.5])):
        got = returns(reward, terminated, done)
        assert got.reward.tolist() == [[3.0, 4.0, 4.0, 0.0, 32.0, 32.0]]
        assert got.steps[0, :3].tolist() == [3, 2, 1]
        assert got.discount.tolist() == [[*discounts, 0.0, 0.25, 0.5]]


def test_the_value_of_the_observation_after_the_steps_stands_for_the_rest() -> None:
    values = np.array([[10.0, 20.0, 40.0, 80.0]], np.float32)
    got = returns([1.0, 2.0, 4.0], NO[:3], NO[:3], n_step=2).bootstrapped(values)
    assert got.tolist() == [[1 + 1 + 0.25 * 40, 2 + 2 + 0.25 * 80, 4 + 0.5 * 80]]
    assert got.dtype == np.float32
