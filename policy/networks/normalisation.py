"""Running mean and variance of numbers, and normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from remuda.policy.ranks import Ranks
from remuda.policy.saved_state import StateMismatchError

CLIP = 10.0
"""Limit of normalised numbers, against outliers that dominate a batch."""


@dataclass(frozen=True)
class Moments:
    """Mean and (population) variance of k numbers over `count` rows so far. Immutable."""

    mean: NDArray[np.float64]
    """float64 [k]; 0 before the first row."""
    variance: NDArray[np.float64]
    """float64 [k]; 1 before the first row, so nothing is scaled."""
    count: float

    EPSILON: ClassVar[float] = 1e-8
    """Added to the variance, for constant numbers."""

    @classmethod
    def empty(cls, size: int) -> Moments:
        """The moments before the first row."""
        return cls(np.zeros(size), np.ones(size), 0.0)

    @classmethod
    def of(cls, rows: NDArray[np.floating]) -> Moments:
        """The moments of `rows` [n, k], whatever n."""
        if not len(rows):
            return cls.empty(rows.shape[1])
        return cls(rows.mean(axis=0, dtype=np.float64), rows.var(axis=0, dtype=np.float64), float(len(rows)))

    @classmethod
    def stored(cls, state: Mapping[str, NDArray[np.float64]], name: str) -> Moments:
        """Moments in the published state of a network, by the name of their module. Raises StateMismatchError."""
        try:
            return cls(state[f"{name}.mean"], state[f"{name}.variance"], float(state[f"{name}.count"][0]))
        except KeyError as error:
            raise StateMismatchError([f"policy: missing {error.args[0]}"]) from error

    @classmethod
    def of_all(cls, ranks: Ranks, rows: NDArray[np.floating]) -> Moments:
        """Moments of the rows [n, k] of all ranks together, equal in all ranks; n may differ between ranks."""
        own = cls.of(rows)
        if ranks.world_size == 1:
            return own
        together = cls.empty(rows.shape[1])
        for part in ranks.gather(np.concatenate([[own.count], own.mean, own.variance])):
            mean, variance = np.split(part[1:], 2)
            together = together.joined(cls(mean, variance, float(part[0])))
        return together

    def including(self, rows: NDArray[np.floating]) -> Moments:
        """The moments with `rows` [n, k] added, whatever n."""
        return self.joined(Moments.of(rows))

    def joined(self, other: Moments) -> Moments:
        """The moments of both together: the parallel update of Chan, Golub & LeVeque (1983)."""
        if not other.count:
            return self
        count = self.count + other.count
        delta, share = other.mean - self.mean, other.count / count
        return Moments(
            self.mean + delta * share,
            self.variance * (1 - share) + other.variance * share + delta * delta * share * (1 - share),
            count,
        )

    @property
    def scale(self) -> NDArray[np.float64]:
        """1 / standard deviation: float64 [k]."""
        return 1.0 / np.sqrt(self.variance + self.EPSILON)


def running_returns(
    reward: NDArray[np.float32],
    done: NDArray[np.bool_],
    valid: NDArray[np.bool_],
    before: NDArray[np.float32],
    *,
    discount: float,
) -> NDArray[np.float64]:
    """Return the discounted sums of past rewards at the n valid slots of segments: float64 [n]. Rewards are divided by
    their standard deviation.

    Args:
        reward: float32 [B, T].
        done: bool [B, T].
        valid: bool [B, T].
        before: float32 [B], each sum before its segment.
        discount: per step.
    """
    sums = np.zeros(reward.shape, np.float64)
    running = before.astype(np.float64)
    for t in range(reward.shape[1]):
        running = np.where(valid[:, t], discount * running + reward[:, t], running)
        sums[:, t] = running
        running = np.where(done[:, t], 0.0, running)
    return sums[valid]
