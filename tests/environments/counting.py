"""An environment that counts, and a policy that counts along: what it carries can be told at sight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from remuda.environments.spaces import Array
from remuda.tests.policy.algorithms.untaught import Untaught


class Counting(gymnasium.Env[np.ndarray, Any]):
    """Its observation is the number of the step within the episode; episodes last `length` steps."""

    observation_space = gymnasium.spaces.Box(-1, 1_000, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int, *, terminates: bool) -> None:
        self._length, self._terminates, self._step = length, terminates, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._step = 0
        return np.array([0.0], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        over = self._step == self._length
        terminated, truncated = over and self._terminates, over and not self._terminates
        return np.array([float(self._step)], np.float32), float(self._step), terminated, truncated, {}


class LosesCount(Counting):
    """Its third step in all raises."""

    steps = 0

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 3:
            raise RuntimeError("lost count")
        return super().step(action)


class CountsAlong(Untaught):
    """Carries how many observations of the episode it has seen, twice: in `Counting` that is the observation itself,
    and anything else is an error. Exploration of any name makes it fail."""

    state_size = 2

    def act(
        self,
        observations: Array,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: Array | None = None,
        state: Array | None = None,
    ) -> Array:
        if exploration:
            raise RuntimeError("the floor gave way")
        self._see(observations, state)
        return np.zeros(len(observations), np.int64)

    def value(self, observations: Array, *, state: Array | None = None) -> Array:
        self._see(observations, state)
        return observations[:, 0]

    def _see(self, observations: Array, state: Array | None) -> None:
        assert state is not None
        assert state.dtype == np.float32
        assert state.shape == (len(observations), 2)
        np.testing.assert_array_equal(state, np.repeat(observations, 2, axis=1))
        state += 1.0
