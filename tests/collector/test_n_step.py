"""Windows of n steps, against the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from remuda.collector.n_step import n_step_windows


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


def test_the_input_is_left_alone() -> None:
    reward, done = np.ones((5, 1)), np.zeros((5, 1), np.bool_)
    n_step_windows(reward, done, n_step=3, discount=0.5)
    assert reward.sum() == 5
    assert not done.any()
