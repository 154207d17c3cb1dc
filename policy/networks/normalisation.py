"""Running mean and variance of a stream of numbers, and scaling by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

CLIP = 10.0
"""Normalised numbers are clipped to ± this: one outlier must not drown a batch."""


@dataclass(frozen=True)
class Moments:
    """Mean and (population) variance of each of k numbers over `count` rows so far. Immutable."""

    mean: NDArray[np.float64]
    """float64 [k]; 0 before the first row."""
    variance: NDArray[np.float64]
    """float64 [k]; 1 before the first row, so that nothing is scaled yet."""
    count: float

    EPSILON: ClassVar[float] = 1e-8
    """Added to the variance, for numbers that never change."""

    @classmethod
    def empty(cls, size: int) -> Moments:
        """The moments before the first row."""
        return cls(np.zeros(size), np.ones(size), 0.0)

    def including(self, rows: NDArray[np.floating]) -> Moments:
        """The moments with `rows` [n, k] added, whatever n: the parallel update of Chan, Golub & LeVeque (1983)."""
        added = len(rows)
        if not added:
            return self
        mean, variance = rows.mean(axis=0, dtype=np.float64), rows.var(axis=0, dtype=np.float64)
        count = self.count + added
        delta, share = mean - self.mean, added / count
        return Moments(
            self.mean + delta * share,
            self.variance * (1 - share) + variance * share + delta * delta * share * (1 - share),
            count,
        )

    @property
    def scale(self) -> NDArray[np.float64]:
        """One over the standard deviation: float64 [k]."""
        return 1.0 / np.sqrt(self.variance + self.EPSILON)


def running_returns(
    reward: NDArray[np.float32],
    done: NDArray[np.bool_],
    valid: NDArray[np.bool_],
    before: NDArray[np.float32],
    *,
    discount: float,
) -> NDArray[np.float64]:
    """Discounted sums of the rewards so far, per slot of segments [B, T]: float64 [n], of the n valid slots.

    `before` [B] is what each sum was before its segment. Their standard deviation is what rewards are divided by.
    """
    sums = np.zeros(reward.shape, np.float64)
    running = before.astype(np.float64)
    for t in range(reward.shape[1]):
        running = np.where(valid[:, t], discount * running + reward[:, t], running)
        sums[:, t] = running
        running = np.where(done[:, t], 0.0, running)
    return sums[valid]
