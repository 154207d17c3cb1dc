"""An environment that does nothing but sleep, so that a machine can hold as many of them as possible."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Observation = NDArray[np.float32]
EPISODE_STEPS = 200


class Sleeping(gymnasium.Env[Observation, np.int64]):
    """Episodes of 200 steps, each of which sleeps; observations of four numbers, two actions, a reward of 1."""

    def __init__(self, step_s: float) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._step_s = step_s
        self._taken = 0
        self._observations = np.random.default_rng(0).uniform(-1.0, 1.0, (EPISODE_STEPS + 1, 4)).astype(np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._taken = 0
        return self._observations[0], {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        time.sleep(self._step_s)
        self._taken += 1
        return self._observations[self._taken], 1.0, self._taken == EPISODE_STEPS, False, {}


def make_env(step_s: float = 0.005) -> Sleeping:
    """What `env.make` names."""
    return Sleeping(step_s)
