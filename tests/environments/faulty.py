"""Environments that do one thing wrong, each in a step that its seed decides."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.environments.spaces import Array

MODULE = "remuda.tests.environments.faulty"
BAD_STEP = 9
"""Which step after its seeded reset goes wrong."""
SEEDS_SHOWN = 8192
OBSERVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "nan": lambda seen: np.array([seen[0], np.nan, seen[2]], np.float32),
    "infinite": lambda seen: np.array([-np.inf, seen[1], seen[2]], np.float32),
    "shape": lambda seen: seen[:, None],
    "dtype": lambda seen: seen.astype(np.complex64),
}
RETURNED: Mapping[str, tuple[int, object]] = {
    "reward": (1, np.inf),
    "large reward": (1, -2e30),
    "no reward": (1, None),
    "list of rewards": (1, [1.0]),
    "text": (1, "1.5"),
    "nan as end": (2, np.nan),
    "text as end": (3, "no"),
    "no info": (4, None),
}
"""Which part of a step is returned as what."""


def hang() -> None:
    while True:
        signal.pause()


class Faulty(gymnasium.Env[Array, Any]):
    """Observes [seed, steps since the seeded reset, noise]; episodes last three to six steps.

    `troubles` says by seed (as text) what goes wrong; `*` is any seed.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, troubles: Mapping[str, str], marker: str | None = None) -> None:
        self.troubles, self.marker = troubles, marker
        self.seed: int | None = None
        self.steps = self.resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.resets = (self.steps, self.resets + 1) if seed is None else (0, 0)
        self.seed = self.seed if seed is None else seed
        if self.trouble == "reset" and self.resets == 1:
            raise RuntimeError("the simulator does not start")
        self.left = int(self.np_random.integers(3, 7))
        if self.trouble == "bare reset" and self.resets == 1:
            return self._observe()
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.left -= 1
        observation, reward = self._observe(), float(self.np_random.normal()) + float(action)
        step: list[Any] = [observation, reward, self.left == 0, False, {}]
        if self.steps == BAD_STEP:
            self._go_wrong(step)
        return tuple(step) if step else None

    @property
    def trouble(self) -> str:
        return self.troubles.get(str(self.seed), self.troubles.get("*", ""))

    def _go_wrong(self, step: list[Any]) -> None:
        observation = step[0]
        if self.trouble in OBSERVATIONS:
            step[0] = OBSERVATIONS[self.trouble](observation)
        elif self.trouble in RETURNED:
            part, value = RETURNED[self.trouble]
            step[part] = value
        elif self.trouble == "raise":
            raise RuntimeError("the simulator broke")
        elif self.trouble == "exit":
            sys.exit(3)
        elif self.trouble == "short":
            step.pop()
        elif self.trouble == "no tuple":
            step.clear()
        elif self.trouble == "die":
            os._exit(7)
        elif self.trouble == "hang":
            self._hang()

    def _hang(self) -> None:
        assert self.marker is not None
        Path(self.marker).touch()
        hang()

    def _observe(self) -> Array:
        noise = float(self.np_random.integers(1000)) / 8  # exact in float32
        return np.array([(self.seed or 0) % SEEDS_SHOWN, self.steps, noise], np.float32)


def make_faulty(troubles: Mapping[str, str], marker: str | None = None) -> Faulty:
    """For `env.make` of a config. All but the first built with the trouble `build` hang."""
    if "build" in troubles.values() and marker is not None:
        if Path(marker).exists():
            hang()
        Path(marker).touch()
    return Faulty(troubles, marker)
