"""An environment in which not every action is legal, and a policy that is told which are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.environments.spaces import Array
from remuda.tests.policy.algorithms.untaught import Untaught

ACTIONS, FIRST = 4, 2


class Choosy(gymnasium.Env[Array, Any]):
    """Observes [which actions are legal, as a number in binary; step]. An illegal action is an error.

    After a step with which all are legal it says nothing of it, and at the end of an episode none is legal.
    """

    observation_space = spaces.Box(0, 100, (2,), np.float32)
    action_space = spaces.Discrete(ACTIONS, start=FIRST)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._time, self._length = 0, int(self.np_random.integers(1, 7))
        seen, _ = self._look()
        return seen, {"action_mask": self._legal.astype(np.int8)}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        if not self._legal[int(action) - FIRST]:
            raise ValueError(f"action {action} is illegal: {self._legal}")
        self._time += 1
        seen, info = self._look()
        return seen, 1.0, self._time == self._length, False, info

    def _look(self) -> tuple[Array, dict[str, Any]]:
        number = 0 if self._time == self._length else int(self.np_random.integers(1, 2**ACTIONS))
        self._legal = bits(np.array([number]))[0]
        said = {} if self._legal.all() else {"action_mask": self._legal.astype(np.int8)}
        return np.array([number, self._time], np.float32), said


def bits(numbers: Array) -> Array:
    """Return bool [n, actions]."""
    return np.asarray(numbers.astype(np.int64)[:, None] >> np.arange(ACTIONS) & 1 == 1)


def legal_in(observations: Array) -> Array:
    """Return bool [n, actions]: what a policy should be told of these observations [n, 2]."""
    legal = bits(observations[:, 0])
    return legal | ~legal.any(axis=1, keepdims=True)


def make() -> Choosy:
    """For `env.make` of a config."""
    return Choosy()


class Careful(Untaught):
    """Draws a legal action, or takes the last one; insists on being told right."""

    uses_legal_actions = True

    def __init__(self) -> None:
        self.times_told = 0

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
        expected = legal_in(observations)
        if legal is None:
            legal = np.ones_like(expected)
        assert (legal.dtype.name, legal.tolist()) == ("bool", expected.tolist())
        self.times_told += 1
        preference = np.arange(ACTIONS) if deterministic else rng.random(legal.shape)
        chosen: Array = np.where(legal, 1 + preference, 0).argmax(axis=1)
        return chosen + FIRST

    def act_recording(
        self,
        observations: Array,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        legal: Array | None = None,
        state: Array | None = None,
    ) -> tuple[Array, Mapping[str, Array]]:
        return self.act(observations, exploration, rng, deterministic=False, legal=legal), {}
