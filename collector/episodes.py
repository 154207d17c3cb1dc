"""Returns and lengths of the episodes that ended in a stretch of steps."""

from __future__ import annotations

import numpy as np

from remuda.collector.n_step import Bools, Floats, Integers


class EpisodeTotals:
    """Sums rewards and steps per episode, across stretches, for all environments at once."""

    def __init__(self, num_envs: int) -> None:
        self._returns: Floats = np.zeros(num_envs)
        self._lengths: Integers = np.zeros(num_envs, np.int64)

    def abandon(self) -> None:
        """Forget the episodes under way."""
        self._returns[:] = 0.0
        self._lengths[:] = 0

    def add(self, reward: Floats, real: Bools, done: Bools) -> tuple[Floats, Integers]:
        """Add a stretch of steps and return (returns, lengths) of the episodes that ended in it.

        All arrays are [time, env]; `real` marks steps that count (their reward is added whether they do or not). The
        episodes are in order of ending; environments that end at the same time are in their own order.
        """
        returns = np.cumsum(reward, axis=0)
        returns += self._returns
        lengths = np.cumsum(real, axis=0, dtype=np.int64)
        lengths += self._lengths
        self._returns, self._lengths = returns[-1].copy(), lengths[-1].copy()
        times, envs = np.nonzero(done)
        if not len(times):
            return np.zeros(0), np.zeros(0, np.int64)
        by_env = envs.argsort(kind="stable")
        same_env = envs[by_env[1:]] == envs[by_env[:-1]]
        later, earlier = (
            by_env[1:][same_env],
            by_env[:-1][same_env],
        )  # an episode and the one before it, same environment
        last = by_env[np.append(~same_env, True)]  # of each environment
        ended = returns[times, envs], lengths[times, envs]
        self._returns[envs[last]] -= ended[0][last]
        self._lengths[envs[last]] -= ended[1][last]
        totals = ended[0].copy(), ended[1].copy()
        totals[0][later] -= ended[0][earlier]
        totals[1][later] -= ended[1][earlier]
        return totals
