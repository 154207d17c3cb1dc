"""What R2D2 learns towards: returns over n steps inside sequences, and the priority of a sequence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


class Returns(NamedTuple):
    """Of each of the T steps to learn from, in B sequences: [B, T]."""

    reward: Floats
    """The rewards of its m steps, summed at the discount: n steps, fewer where the episode ended before."""
    steps: NDArray[np.int64]
    """m: the value of the observation so many steps later stands for the rest."""
    discount: Floats
    """discount ** m, or 0 where the episode terminated: nothing follows."""


def n_step_returns(reward: Floats, terminated: Bools, done: Bools, *, n_step: int, discount: float) -> Returns:
    """Look ahead from each step but the last `n_step` - 1 (Sutton and Barto 2018, section 7.1), never past the end of
    an episode. Everything is [B, T + n_step - 1]."""
    steps = reward.shape[1] - n_step + 1
    total = reward[:, :steps].astype(np.float64)
    length = np.ones(total.shape, np.int64)
    running = ~done[:, :steps]
    for k in range(1, n_step):
        total += running * (discount**k * reward[:, k : k + steps])
        length += running
        running = running & ~done[:, k : k + steps]
    own: NDArray[np.int64] = np.arange(steps, dtype=np.int64)
    last = own + length - 1
    ends = np.take_along_axis(terminated, last, axis=1)
    return Returns(total.astype(np.float32), length, np.where(ends, 0.0, discount**length).astype(np.float32))


def sequence_priorities(errors: torch.Tensor, valid: torch.Tensor, *, eta: float) -> torch.Tensor:
    """eta * max + (1 - eta) * mean of the absolute errors [B, T] of the steps that are `valid`, section 2.3 of the
    paper: float32 [B]; 0 for a sequence without any."""
    sizes = errors.abs() * valid
    mean = sizes.sum(1) / valid.sum(1).clamp(min=1)
    return eta * sizes.amax(1) + (1.0 - eta) * mean
