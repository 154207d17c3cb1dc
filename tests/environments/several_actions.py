"""Environments whose actions have several components."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.environments.spaces import Array

COUNTS = (3, 4, 2)
STEPS = 10


class Dials(gymnasium.Env[Array, Array]):
    """Each dial is to be set to the number that its lights show, which are the observation; a reward of 1 is shared
    among the dials that are. An episode has 10 steps."""

    observation_space = spaces.Box(0.0, 1.0, (sum(COUNTS),), np.float32)
    action_space: Any = spaces.MultiDiscrete(list(COUNTS))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space
        reward = float(np.mean(np.equal(self.numbers(action), self._target)))
        self._steps += 1
        return self._shown(), reward, False, self._steps == STEPS, {}

    def numbers(self, action: Any) -> Array:
        """What each dial is set to."""
        return np.asarray(action)

    def _shown(self) -> Array:
        self._target = self.np_random.integers(0, COUNTS)
        return np.concatenate([np.eye(count)[at] for count, at in zip(COUNTS, self._target, strict=True)]).astype("f4")


class NamedDials(Dials):
    """The same with a nested action, whose masks are nested, too: the first dial never has its last number, and all of
    the others are legal."""

    action_space = spaces.Dict(
        {
            "first": spaces.Discrete(COUNTS[0], start=-1),
            "others": spaces.Tuple((spaces.Discrete(4), spaces.MultiBinary(1))),
        }
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        seen, _ = super().reset(seed=seed)
        return seen, self._said()

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        assert action["first"] != 1, "an illegal action"
        return *super().step(action)[:4], self._said()

    def numbers(self, action: Any) -> Array:
        return np.array([action["first"] + 1, action["others"][0], *action["others"][1]])

    def _said(self) -> dict[str, Any]:
        return {"action_mask": {"first": np.array([1, 1, 0], np.int8), "others": (np.ones(4, np.int8), None)}}


class Unpackable(Dials):
    """With a part that is not counted."""

    action_space = spaces.Dict({"turn": spaces.Discrete(2), "force": spaces.Box(-1.0, 1.0, (1,))})
