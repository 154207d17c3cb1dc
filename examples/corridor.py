"""A corridor with a reward only at its end: random actions miss the end of a long corridor. See callbacks.md."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Corridor(gymnasium.Env[np.int64, np.int64]):
    """One of two doors leads a step on, the other door back to the start; the right door depends on the position, and
    is the same in all corridors. An observation is the position, 0 to 63. The end brings 1, and every step costs 0.001.
    """

    observation_space = gymnasium.spaces.Discrete(64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 32) -> None:
        if not 1 <= length <= 63:
            raise ValueError(f"length is {length}: it is between 1 and 63")
        self._length = length
        self._doors = np.random.default_rng(0).integers(0, 2, 64)
        self._at, self._steps = 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        self._at, self._steps = 0, 0
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        self._at = self._at + 1 if action == self._doors[self._at] else 0
        arrived = self._at == self._length
        reward = float(arrived) - 0.001
        return self._seen(), reward, arrived, self._steps == 4 * self._length, {}

    def _seen(self) -> np.int64:
        return np.int64(self._at)
