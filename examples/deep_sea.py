"""A sea whose treasure lies deep (Osband et al. 2019): a single row of right actions finds it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Observation = NDArray[np.float32]
SWIMMING = -0.01
"""Reward of all steps to the right together."""


class DeepSea(gymnasium.Env[Observation, np.int64]):
    """A square of `size` times `size` cells. A diver begins at the top left, and sinks by a row with each step, a cell
    to the left or to the right. The treasure lies at the bottom right, with a reward of 1: only steps to the right find
    the treasure. Each step to the right costs a little, so all other experience leads away from the treasure. Which of
    the two actions goes right is drawn once for each cell. An observation marks the cell of the diver.

    Random actions find the treasure once in 2 ** `size` episodes.
    """

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size: int = 12) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (size * size,), np.float32)
        self._size = size
        self._right = np.random.default_rng(0).integers(2, size=(size, size))
        self._row = self._column = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._row = self._column = 0
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        right = action == self._right[self._row, self._column]
        reward = SWIMMING / self._size if right else 0.0
        if right and self._column == self._size - 1:
            reward += 1.0
        self._row += 1
        self._column = min(self._column + 1, self._size - 1) if right else max(self._column - 1, 0)
        return self._seen(), reward, self._row == self._size, False, {}

    def _seen(self) -> Observation:
        seen = np.zeros((self._size, self._size), np.float32)
        if self._row < self._size:
            seen[self._row, self._column] = 1.0
        return seen.reshape(-1)
