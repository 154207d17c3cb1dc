"""Returns and lengths of finished episodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remuda.collector.arrays import Bools, Floats, Integers


class Ended(NamedTuple):
    """Episodes in order of ending, at equal times in order of environments."""

    returns: Floats
    """[n]: sums of rewards."""
    discounted: Floats
    """[n]: the same, with the reward of an episode's step t (from 0) times discount^t."""
    lengths: Integers
    """[n]: steps."""


class EpisodeTotals:
    """Sums rewards and steps per episode, across stretches, for all environments at once."""

    def __init__(self, num_envs: int, *, discount: float) -> None:
        self._discount = discount
        self._sums: Floats = np.zeros((2, num_envs))
        """Sums of rewards and of discounted rewards of the current episodes."""
        self._lengths: Integers = np.zeros(num_envs, np.int64)

    def abandon(self, envs: Bools | None = None) -> None:
        """Forget the episodes under way; `envs` [env]: of these environments alone."""
        those = slice(None) if envs is None else envs
        self._sums[:, those] = 0.0
        self._lengths[those] = 0

    def add(self, reward: Floats, real: Bools, done: Bools, uncounted: Bools | None = None) -> Ended:
        """Add a stretch of steps and return its finished episodes.

        All arrays are [time, env]. `real` marks counted steps; all others bring no reward. `uncounted` ends are left
        out.
        """
        lengths = np.cumsum(real, axis=0, dtype=np.int64)
        lengths += self._lengths
        started = np.zeros_like(lengths)  # what `lengths` was when the episode of this step began
        np.maximum.accumulate((lengths * done)[:-1], axis=0, out=started[1:])
        discounted = reward * self._discount ** (lengths - real - started)
        sums = np.cumsum((reward, discounted), axis=1)
        sums += self._sums[:, None]
        self._sums, self._lengths = sums[:, -1].copy(), lengths[-1].copy()
        times, envs = np.nonzero(done)
        if not len(times):
            return Ended(np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
        by_env = envs.argsort(kind="stable")
        same_env = envs[by_env[1:]] == envs[by_env[:-1]]
        later, earlier = (
            by_env[1:][same_env],
            by_env[:-1][same_env],
        )  # an episode and the one before it, same environment
        last = by_env[np.append(~same_env, True)]  # of each environment
        sums_then, lengths_then = sums[:, times, envs], lengths[times, envs]
        self._sums[:, envs[last]] -= sums_then[:, last]
        self._lengths[envs[last]] -= lengths_then[last]
        totals, steps = sums_then.copy(), lengths_then.copy()
        totals[:, later] -= sums_then[:, earlier]
        steps[later] -= lengths_then[earlier]
        if uncounted is not None:
            counted = ~uncounted[times, envs]
            return Ended(totals[0, counted], totals[1, counted], steps[counted])
        return Ended(totals[0], totals[1], steps)
