"""An environment that paints: each step one more column of its picture is white."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from remuda.environments.spaces import Array, Space
from remuda.tests.environments.leaving import Leaving

HEIGHT, WIDTH, LENGTH = 36, 50, 10


class Painter(gymnasium.Env[Array, Any]):
    """Episodes of LENGTH steps; the picture after `step` steps is white in its first 5 * step columns."""

    observation_space: Space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
        self.render_mode = render_mode
        self.taken = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.taken = 0
        return np.zeros(self.observation_space.shape or (), np.float32), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.taken += 1
        return np.zeros(self.observation_space.shape or (), np.float32), 1.0, self.taken == LENGTH, False, {}

    def render(self) -> Any:
        picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        picture[:, : 5 * self.taken] = 255
        return picture


class WidePainter(Painter):
    """Its observations are those of the tiny runs' walk."""

    observation_space = gymnasium.spaces.Box(-20.0, 20.0, (2,), np.float32)


class PaintedGame(Leaving):
    """Agents of Leaving whose picture is white in its first 5 * step columns."""

    def __init__(self, lengths: Sequence[int], render_mode: str | None = None) -> None:
        super().__init__(lengths)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
        self.render_mode = render_mode

    def render(self) -> Any:
        picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        picture[:, : 5 * self.step_of_episode] = 255
        return picture
