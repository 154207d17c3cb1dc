"""Which positions of which rows are unrolled, what is known of each, and the returns that values learn. In numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SEARCH_POLICY, ROOT_VALUE = "search_policy", "root_value"
"""Columns that are recorded: the share of the search's visits, [actions], and the value it found."""
TEMPERATURE = "collect_mcts_temperature"
"""Names the exploration."""
VISIT_ENTROPY, COMPLETED_VALUE = "visit_entropy_mean", "completed_value_mean"
"""Metrics that collectors report of their searches: the entropy of the visits in nats, and the value of the root."""


Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Positions:
    """The positions of a batch that are unrolled, P in all: position 0 of every row, then position 1 of those rows that
    have one, and so on to K. Position k of a row is the observation after k of its steps.

    A row's positions go as far as it is known what happens: to its last observation, and where the episode terminated
    on to K, since from then on nothing happens (states after the end are absorbing, as in the paper's appendix G).
    Rows with more positions come first, so that those of position k + 1 are a beginning of those of position k.
    """

    counts: tuple[int, ...]
    """Rows that have position 0, 1 … K; falling."""
    row: Ints
    """[P] of the batch."""
    position: Ints
    """[P]"""
    acted: Bools
    """[P]: an action was chosen there. So it has a policy to learn."""
    valued: Bools
    """[P]: it is known what followed. So it has a value to learn: 0 once the episode has terminated. It is not known at
    an observation after which nothing more was collected."""
    seen: Bools
    """[P]: there is an observation of it. So an imagined latent state can be compared with what it should be."""

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
        """Which action leads from each position to the next, int64 [P]; from those of K, to none, any.

        Args:
            action: int64 [B, K], as taken.
            chance: int64 [B, K]: taken after the end, where any action leads nowhere.
        """
        step = np.minimum(self.position, action.shape[1] - 1)
        taken: Ints = np.where(self.acted, action[self.row, step], chance[self.row, step])
        return taken

    def rewards(self, reward: Floats, *, after: int = 1) -> Floats:
        """What the step to each position from `after` on brought, float32: 0 after the end. `reward` is [B, W]."""
        row, step = self.row[sum(self.counts[:after]) :], self.position[sum(self.counts[:after]) :] - 1
        seen = self.seen[sum(self.counts[:after]) :]
        brought: Floats = np.where(seen, reward[row, step], np.float32(0.0))
        return brought


@dataclass(frozen=True)
class Returns:
    """n-step returns of positions, as far as the rewards give them: the rest is bootstrapped."""

    rewards: Floats
    """[P]: the discounted sum of the rewards of up to n steps."""
    bootstrapped: Ints
    """int64 [m]: which of the positions add a value: those whose n steps end before the episode terminates."""
    observation: Ints
    """int64 [m]: of the row, that whose value it is: n steps later, or the last there is."""
    discount: Floats
    """[m]: what that value is multiplied with."""

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
        """Sum up a batch's `reward` [B, W], with `steps` and `terminated` as for Positions.

        `discount` is per step, and negative where two players take turns: what is good for the one who acts next is bad
        for the one who acts now.
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
