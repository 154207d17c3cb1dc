"""Environments whose observations have several parts."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Grid(gymnasium.Env[dict[str, Any], np.int64]):
    """Like Minigrid's: an image, a direction and a text. The image's first pixel says which action gets a reward of 1;
    an episode has 10 steps."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "direction": spaces.Discrete(4, start=1),
                "image": spaces.Box(0, 255, (7, 7, 3), np.uint8),
                "mission": spaces.Text(10),
                "place": spaces.Tuple((spaces.Box(-1.0, 1.0, (2,), np.float64), spaces.MultiDiscrete([2, 3]))),
                "switches": spaces.MultiBinary(3),
            }
        )
        self.action_space = spaces.Discrete(4)
        self._steps = 0

    def _observed(self) -> dict[str, Any]:
        self._target = int(self.np_random.integers(4))
        image = np.zeros((7, 7, 3), np.uint8)
        image[0, 0] = 80 * self._target
        return {
            "direction": np.int64(1 + int(self.np_random.integers(4))),
            "image": image,
            "mission": "face it",
            "place": (np.array([0.5, -0.5]), np.array([1, 2])),
            "switches": np.array([1, 0, 1], np.int8),
        }

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observed(), {}

    def step(self, action: np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        reward = float(int(action) == self._target)
        self._steps += 1
        return self._observed(), reward, False, self._steps >= 10, {}


class WithGraph(Grid):
    """With a part that no network here reads."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"a": spaces.Sequence(spaces.Discrete(3))})


class WrongShape(Grid):
    """Gives another shape than it promises."""

    def _observed(self) -> dict[str, Any]:
        return super()._observed() | {"switches": np.array([1, 0], np.int8)}


class Cells(gymnasium.Env[np.ndarray, np.int64]):
    """MultiDiscrete observations."""

    def __init__(self) -> None:
        self.observation_space = spaces.MultiDiscrete([3, 2])
        self.action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.array([2, 1]), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.array([0, 1]), 0.0, True, False, {}


class Goal(gymnasium.Env[dict[str, Any], np.ndarray]):
    """Like robots that are told where to go: a Dict of vectors, and numbers as actions. The reward is largest for the
    action that is the goal; an episode has 10 steps."""

    def __init__(self, counted: bool = False) -> None:
        self.observation_space = spaces.Dict(
            {"goal": spaces.Box(-1.0, 1.0, (1,), np.float64), "side": spaces.Discrete(2), "text": spaces.Text(5)}
        )
        self.action_space: spaces.Space[Any] = (
            spaces.Discrete(2) if counted else spaces.Box(-1.0, 1.0, (1,), np.float32)
        )
        self._steps = 0

    def _observed(self) -> dict[str, Any]:
        self._goal = float(self.np_random.uniform(-1.0, 1.0))
        return {"goal": np.array([self._goal]), "side": np.int64(self._goal > 0), "text": "go"}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observed(), {}

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        gone = float(np.asarray(action).reshape(-1)[0])
        missed = abs(gone - self._goal) if isinstance(self.action_space, spaces.Box) else gone != (self._goal > 0)
        self._steps += 1
        return self._observed(), 1.0 - float(missed), False, self._steps >= 10, {}
