"""A maze that needs memory (Bakker 2001): the first observation shows the right turn at the end."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Observation = NDArray[np.float32]
FORWARD, LEFT, RIGHT = range(3)
WASTED = -0.05
"""Reward of a useless step."""


class TMaze(gymnasium.Env[Observation, np.int64]):
    """A corridor of `length` steps with a junction at its end. An observation has two numbers: the cue, -1 (left) or 1
    (right) at the start and 0 everywhere else, and a flag for the junction. Turning at the junction ends the episode,
    with 1 for the right direction and -1 for the wrong direction. Without memory of the cue the mean return is 0."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, length: int = 8) -> None:
        self._length = length
        self._at, self._turn, self._steps = 0, LEFT, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._at, self._steps = 0, 0
        self._turn = int(self.np_random.integers(LEFT, RIGHT + 1))
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        truncated = self._steps == 4 * self._length
        if self._at < self._length:
            moves = action == FORWARD
            self._at += int(moves)
            return self._seen(), 0.0 if moves else WASTED, False, truncated, {}
        if action == FORWARD:  # against the wall
            return self._seen(), WASTED, False, truncated, {}
        return self._seen(), 1.0 if action == self._turn else -1.0, True, False, {}

    def _seen(self) -> Observation:
        cue = 0 if self._steps else 1 if self._turn == RIGHT else -1
        return np.array([cue, self._at == self._length], np.float32)
