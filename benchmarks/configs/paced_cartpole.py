"""CartPole whose step takes a fixed time, as that of a simulator does which runs elsewhere."""

from __future__ import annotations

import time
from typing import SupportsFloat, cast

import gymnasium
from numpy import float32, int64
from numpy.typing import NDArray

Observation = NDArray[float32]
Environment = gymnasium.Env[Observation, int64]


class Paced(gymnasium.Wrapper[Observation, int64, Observation, int64]):
    """Waits in each step."""

    def __init__(self, env: Environment, step_s: float) -> None:
        super().__init__(env)
        self._step_s = step_s

    def step(self, action: int64) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, object]]:
        time.sleep(self._step_s)
        return self.env.step(action)


def make_env(step_s: float = 0.001) -> Environment:
    """What `env.make` names."""
    return Paced(cast("Environment", gymnasium.make("CartPole-v1")), step_s)
