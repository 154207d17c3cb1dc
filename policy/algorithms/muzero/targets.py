"""Targets of MuZero: the unrolled positions of rows, and the returns of values. In numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SEARCH_POLICY, ROOT_VALUE = "search_policy", "root_value"
"""Recorded columns: the share of the search's visits, [actions], and the value of the root."""
TEMPERATURE = "collect_mcts_temperature"
"""Names the exploration."""
VISIT_ENTROPY, COMPLETED_VALUE = "visit_entropy_mean", "completed_value_mean"
"""Metrics of the collectors' searches: the entropy of the visits in nats, and the value of the root."""


Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Positions:
    """The P unrolled positions of a batch: position 0 of all rows, then position 1 of the rows that have it, and so on
    to K. Position k of a row is the observation after k of its steps.

    A row's positions reach to its last observation, and after a terminated episode to K, since states after the end are
    absorbing (as in the paper's appendix G). Rows with more positions come first, so the rows of position k + 1
    are the first rows of position k.
    """

    counts: tuple[int, ...]
    """Number of rows with position 0, 1 … K; not increasing."""
    row: Ints
    """[P] of the batch."""
    position: Ints
    """[P]"""
    acted: Bools
    """[P]: True if an action was chosen here, so the position has a policy target."""
    valued: Bools
    """[P]: True if the later rewards are known, so the position has a value target: 0 after the end of the
    episode. False for the last collected observation."""
    seen: Bools
    """[P]: True if the position has an observation, for comparison with the imagined latent state."""

    @classmethod
    def of(cls, steps: NDArray[np.int32], terminated: Bools, *, unroll_steps: int) -> Positions:
        """Lay out a batch of B rows, by `steps` and `terminated` [B] of remuda.config.declaration.Unrolls."""
        last = np.where(terminated, unroll_steps, np.minimum(steps, unroll_steps))
        order = np.argsort(-last, kind="stable")
        has = last[order][None, :] >= np.arange(unroll_steps + 1)[:, None]
        position, index = np.nonzero(has)
        row = order[index]
        known = steps[row]
        return cls(
            counts=tuple(int(count) for count in has.sum(axis=1)),
            row=row,
            position=position,
            acted=position < known,
            valued=(position < known) | terminated[row],
            seen=position <= known,
        )

    def of_columns(self, column: np.ndarray) -> np.ndarray:
        """The entries [P, …] of a column [B, K + 1 or more, …]."""
        entries: np.ndarray = column[self.row, self.position]
        return entries

    def actions(self, action: Ints, chance: Ints) -> Ints:
        """Actions from each position to the next, int64 [P]; arbitrary for position K. Of `action`, int64 [B, K], as
        taken; after the end of the episode, where actions have no effect, of `chance`, int64 [B, K]."""
        step = np.minimum(self.position, action.shape[1] - 1)
        taken: Ints = np.where(self.acted, action[self.row, step], chance[self.row, step])
        return taken

    def rewards(self, reward: Floats) -> Floats:
        """Rewards of the steps to the positions from 1 on, float32; 0 after the end. `reward` is [B, W]."""
        row, position, seen = (column[self.counts[0] :] for column in (self.row, self.position, self.seen))
        brought: Floats = np.where(seen, reward[row, position - 1], np.float32(0.0))
        return brought


@dataclass(frozen=True)
class Returns:
    """n-step returns of positions without the bootstrapped values."""

    rewards: Floats
    """[P]: the discounted sum of the rewards of up to n steps."""
    bootstrapped: Ints
    """int64 [m]: positions with a bootstrapped value: their n steps end before the episode terminates."""
    observation: Ints
    """int64 [m]: index in the row of the observation to bootstrap from: n steps later, or the last observation."""
    discount: Floats
    """[m]: factor of the bootstrapped value."""

    @classmethod
    def of(
        cls,
        positions: Positions,
        reward: Floats,
        steps: NDArray[np.int32],
        terminated: Bools,
        *,
        n_step: int,
        discount: float,
    ) -> Returns:
        """Sum a batch's `reward` [B, W], with `steps` and `terminated` as for Positions.

        `discount` is per step; negative for two alternating players, whose interests are opposed.
        """
        powers = discount ** np.arange(n_step + 1)
        window: int = reward.shape[1]
        counted = np.where(np.arange(window) < steps[:, None], reward, 0.0)
        windows = np.lib.stride_tricks.sliding_window_view(counted, n_step, axis=1) @ powers[:n_step]
        rewards = positions.of_columns(windows).astype(np.float32)
        known = steps[positions.row]
        ahead = np.minimum(n_step, known - positions.position)
        reaches_end = terminated[positions.row] & (positions.position + n_step >= known)
        bootstrapped = np.flatnonzero(positions.acted & ~reaches_end)
        steps_ahead = ahead[bootstrapped]
        return cls(
            rewards=rewards,
            bootstrapped=bootstrapped,
            observation=positions.position[bootstrapped] + steps_ahead,
            discount=powers[steps_ahead].astype(np.float32),
        )

    def with_values(self, values: Floats) -> Floats:
        """The whole returns [P], given the values [m] of the observations bootstrapped from."""
        whole = self.rewards.copy()
        whole[self.bootstrapped] += self.discount * values
        return whole
