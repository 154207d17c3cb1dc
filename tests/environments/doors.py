"""An environment that nobody masters who does not know which actions are legal."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.environments.spaces import Array

DOORS, STEPS = 20, 10


class Doors(gymnasium.Env[Array, np.int64]):
    """Two of twenty doors are open, one with an even number and one with an odd one, and nothing but the mask says
    which. The observation says whether to go through the even or the odd one: a reward of 1 for that, 0 for the other;
    to run into a door that is shut ends the episode with -1. It has 10 steps.

    With masks 10 can be had, 5 by chance; without, a door is shut nine times in ten, whatever was learned.
    """

    def __init__(self, *, tells: bool = True) -> None:
        """`tells`: whether there are masks."""
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(DOORS)
        self._tells = tells

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._look()

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        is_open, reward = bool(self._open[action]), float(action % 2 == self._wanted)
        seen, said = self._look()
        return seen, reward if is_open else -1.0, not is_open, self._steps == STEPS, said

    def _look(self) -> tuple[Array, dict[str, Any]]:
        self._wanted = int(self.np_random.integers(2))
        self._open = np.zeros(DOORS, np.int8)
        self._open[2 * self.np_random.integers(0, DOORS // 2, 2) + [0, 1]] = 1
        said = {"action_mask": self._open} if self._tells else {}
        return np.eye(2, dtype=np.float32)[self._wanted], said
