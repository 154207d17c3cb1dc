"""Turns steps of a vector of environments into rows of n-step experience."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Windows:
    """For each step, the window of up to n steps of its episode that starts there."""

    reward: Floats
    """[time, env]: sum of discount^k * reward over the window."""
    length: Integers
    """[time, env]: steps in the window, m."""
    complete: Bools
    """[time, env]: nothing that comes later can change the window: it has n steps or its episode ended in it."""


def n_step_windows(reward: Floats, done: Bools, *, n_step: int, discount: float) -> Windows:
    """Look ahead from every step (Sutton and Barto 2018, section 7.1), over all environments at once.

    `reward` and `done` are [time, env]; `done` marks the last step of an episode, terminated or truncated. A window
    does not reach past it. The loop is over n, not over steps.
    """
    steps = len(reward)
    total = reward.copy()
    length = np.ones(reward.shape, np.int64)
    running = ~done
    for k in range(1, min(n_step, steps)):
        grows = running[: steps - k]
        total[: steps - k] += grows * (discount**k * reward[k:])
        length[: steps - k] += grows
        grows &= ~done[k:]
    complete = ~running
    complete[: max(steps - n_step + 1, 0)] = True
    return Windows(total, length, complete)
